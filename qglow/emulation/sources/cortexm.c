/* A program for an emulated Cortex-M board, behind startup.c of the bundle: files of the host by semihosting.

   Semihosting for AArch32 and AArch64, Arm's ABI document IHI 0074: input.bin is read, output.bin written. */
#include "runner.h"

enum { OPEN = 0x01, CLOSE = 0x02, WRITE = 0x05, READ = 0x06, EXIT = 0x20 };

static long call(long operation, const void *block)
{
    register long r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static long input = -1, output = -1;

int system_protect(void *pages, size_t size)
{
    (void)pages;
    (void)size;
    return 0;
}

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

void fault(void)
{
    system_exit(43);
}

int main(void)
{
    input = open_file("input.bin", 9, 1);
    output = open_file("output.bin", 10, 5);
    system_exit(run_samples());
    return 0;
}
