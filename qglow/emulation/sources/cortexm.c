/* A program for an emulated Cortex-M board: start-up code, and files of the host by semihosting.

   Semihosting for AArch32 and AArch64, Arm's ABI document IHI 0074: input.bin is read, output.bin written. */
#include "runner.h"

enum { OPEN = 0x01, CLOSE = 0x02, WRITE = 0x05, READ = 0x06, EXIT = 0x20 };

extern unsigned char stack_top[], bss_start[], bss_end[], data_start[], data_end[], data_stored[];

static long call(long operation, const void *block)
{
    register long r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static long input = -1, output = -1;

void system_exit(int status)
{
    const long block[2] = {0x20026, status};
    if (output >= 0) {
        const long file[1] = {output};
        call(CLOSE, file);
    }
    for (;;) {
        call(EXIT, block);
    }
}

static long open_file(const char *name, long length, long mode)
{
    const long block[3] = {(long)name, mode, length};
    long file = call(OPEN, block);
    if (file < 0) {
        system_exit(42);
    }
    return file;
}

void system_read(void *data, size_t size)
{
    const long block[3] = {input, (long)data, (long)size};
    if (call(READ, block) != 0) {
        system_exit(40);
    }
}

void system_write(const void *data, size_t size)
{
    const long block[3] = {output, (long)data, (long)size};
    if (call(WRITE, block) != 0) {
        system_exit(41);
    }
}

static void fault(void)
{
    system_exit(43);
}

__attribute__((used)) static void begin(void)
{
    for (volatile unsigned char *at = bss_start; at < bss_end; at++) {
        *at = 0;
    }
    for (size_t i = 0; i < (size_t)(data_end - data_start); i++) {
        ((volatile unsigned char *)data_start)[i] = data_stored[i];
    }
    input = open_file("input.bin", 9, 1);
    output = open_file("output.bin", 10, 5);
    system_exit(run_samples());
}

/* No compiled code runs before the float unit may be used (coprocessors 10 and 11). */
__attribute__((naked)) void reset(void)
{
#if defined(FLOAT_UNIT)
    __asm__ volatile("ldr r0, =0xE000ED88\n"
                     "ldr r1, [r0]\n"
                     "orr r1, r1, #0xF00000\n"
                     "str r1, [r0]\n"
                     "dsb\n"
                     "isb\n"
                     "b begin\n"
                     ".ltorg\n");
#else
    __asm__ volatile("bl begin\n");
#endif
}

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault,
};
