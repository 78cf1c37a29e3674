"""One file per step. A step that has been released is never changed: a new one follows it."""
