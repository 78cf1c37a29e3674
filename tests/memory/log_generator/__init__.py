"""A made-up device that runs made-up graphs and logs them as the tt-mlir runtime does; the truth is kept beside."""
