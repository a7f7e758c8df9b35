/* Parts of a program that runs a bundle: what the system below gives, and the loop over samples. */
#ifndef RUNNER_H
#define RUNNER_H

#include <stddef.h>
#include <stdint.h>

/* The system: bytes in and out, and the end of the program. */
void system_read(void *data, size_t size);
void system_write(const void *data, size_t size);
void system_exit(int status);

/* Refuse all access to pages from now on. Returns 0 where the system has no pages. */
#define PAGE 4096u
int system_protect(void *pages, size_t size);

/* Run the bundle over all samples; returns the exit status. */
int run_samples(void);

#endif
