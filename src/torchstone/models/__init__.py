"""A name -> a model and example inputs for it."""
