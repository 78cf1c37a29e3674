"""ATen ops computed with ttnn's ops, by subject; each rule is compared with its op on the CPU by a test."""
