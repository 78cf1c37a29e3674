/* The program that stands for every kernel of a mock device. Loading it needs a relocation: hence the global and the call. */
volatile int value;
__attribute__((noinline)) int read_value(void) { return value; }
__attribute__((section(".start"))) void _start(void) { value = read_value() + 1; }
