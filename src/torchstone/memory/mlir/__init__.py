"""MLIR text as the runtime prints it -> names, types and sizes."""
