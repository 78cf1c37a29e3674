"""A simulated device that runs generated graphs and logs them as the tt-mlir runtime does; the truth is kept beside."""
