"""A mapped op as JSON -> calls of ttnn on the device of this process; needs ttnn, not torch."""
