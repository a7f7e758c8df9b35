/* A program for Linux without a C library: standard input and output by system calls. */
#include "runner.h"

#if defined(__arm__)
enum { READ = 3, WRITE = 4, EXIT = 1, PROTECT = 125 };
#else
enum { READ = 63, WRITE = 64, EXIT = 93, PROTECT = 226 };
#endif

static long call(long number, long first, long second, long third)
{
#if defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#elif defined(__arm__)
    register long r7 __asm__("r7") = number;
    register long r0 __asm__("r0") = first;
    register long r1 __asm__("r1") = second;
    register long r2 __asm__("r2") = third;
    __asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
    return r0;
#elif defined(__riscv)
    register long a7 __asm__("a7") = number;
    register long a0 __asm__("a0") = first;
    register long a1 __asm__("a1") = second;
    register long a2 __asm__("a2") = third;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
    return a0;
#else
#error "no system calls of this processor"
#endif
}

void system_exit(int status)
{
    for (;;) {
        call(EXIT, status, 0, 0);
    }
}

int system_protect(void *pages, size_t size)
{
    if (call(PROTECT, (long)pages, (long)size, 0) != 0) {
        system_exit(44);
    }
    return 1;
}

void system_read(void *data, size_t size)
{
    unsigned char *bytes = data;
    while (size > 0) {
        long count = call(READ, 0, (long)bytes, (long)size);
        if (count <= 0) {
            system_exit(40);
        }
        bytes += count;
        size -= (size_t)count;
    }
}

void system_write(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    while (size > 0) {
        long count = call(WRITE, 1, (long)bytes, (long)size);
        if (count <= 0) {
            system_exit(41);
        }
        bytes += count;
        size -= (size_t)count;
    }
}

void start(void)
{
    system_exit(run_samples());
}

#if defined(__aarch64__)
__asm__(".globl _start\n_start:\nmov x29, #0\nmov x30, #0\nbl start\n");
#elif defined(__arm__)
__asm__(".globl _start\n.arm\n_start:\nbl start\n");
#else
__asm__(".globl _start\n_start:\n.option push\n.option norelax\nla gp, __global_pointer$\n.option pop\ncall start\n");
#endif
