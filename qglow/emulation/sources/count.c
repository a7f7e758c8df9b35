/* Plugin of QEMU that counts executed instructions and writes their number to standard error at the end.

   Declarations are those of QEMU's plugin interface, version 1 (docs/devel/tcg-plugins). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
typedef void (*translation_callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*exit_callback)(qemu_plugin_id_t id, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translation_callback callback);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, exit_callback callback, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int operation, void *counter, uint64_t step);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);

int qemu_plugin_version = 1;

static uint64_t executed;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(qemu_plugin_id_t id, void *data)
{
    (void)id;
    (void)data;
    fprintf(stderr, "executed %llu\n", (unsigned long long)executed);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *information, int count, char **arguments)
{
    (void)information;
    (void)count;
    (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
