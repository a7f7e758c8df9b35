/* The functions of the C library that compiled code may call. */
#include <stddef.h>

void *memset(void *destination, int value, size_t size)
{
    volatile unsigned char *bytes = destination;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)value;
    }
    return destination;
}

void *memmove(void *destination, const void *source, size_t size)
{
    volatile unsigned char *to = destination;
    const unsigned char *from = source;
    if ((const unsigned char *)destination <= from) {
        for (size_t i = 0; i < size; i++) {
            to[i] = from[i];
        }
    } else {
        for (size_t i = size; i-- > 0;) {
            to[i] = from[i];
        }
    }
    return destination;
}

void *memcpy(void *destination, const void *source, size_t size)
{
    return memmove(destination, source, size);
}
