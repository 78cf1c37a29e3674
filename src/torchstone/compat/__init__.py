"""Imports of other tools -> torchstone's answers, under the names that their users' files import."""
