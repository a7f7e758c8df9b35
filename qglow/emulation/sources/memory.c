/* The functions of the C library that compiled code may call. The compiler must not see memset in a loop. */
#include <stddef.h>
#include <stdint.h>

typedef uint32_t __attribute__((may_alias)) word;

static int is_aligned(const void *pointer)
{
    return (uintptr_t)pointer % sizeof(word) == 0;
}

void *memset(void *destination, int value, size_t size)
{
    unsigned char *bytes = destination;
    if (is_aligned(bytes)) {
        const word four = (unsigned char)value * 0x01010101u;
        for (; size >= sizeof four; size -= sizeof four, bytes += sizeof four) {
            *(volatile word *)bytes = four;
        }
    }
    for (; size > 0; size--, bytes++) {
        *(volatile unsigned char *)bytes = (unsigned char)value;
    }
    return destination;
}

void *memmove(void *destination, const void *source, size_t size)
{
    unsigned char *to = destination;
    const unsigned char *from = source;
    if (to <= from || to >= from + size) {
        if (is_aligned(to) && is_aligned(from)) {
            for (; size >= sizeof(word); size -= sizeof(word), to += sizeof(word), from += sizeof(word)) {
                *(volatile word *)to = *(const word *)from;
            }
        }
        for (; size > 0; size--, to++, from++) {
            *(volatile unsigned char *)to = *from;
        }
    } else {
        for (; size > 0; size--) {
            ((volatile unsigned char *)to)[size - 1] = from[size - 1];
        }
    }
    return destination;
}

void *memcpy(void *destination, const void *source, size_t size)
{
    return memmove(destination, source, size);
}
