/* Plugin of QEMU that counts executed instructions and writes their number to standard error at the end.

   Declarations are those of QEMU's plugin interface (docs/devel/tcg-plugins), in what its versions have in common.
   VERSION, the version to ask for, comes with the command line: QEMU 9 ceased to take 1, older ones have no 2. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
typedef void (*translation_callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*execution_callback)(unsigned int processor, void *data);
typedef void (*exit_callback)(qemu_plugin_id_t id, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translation_callback callback);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, execution_callback callback, int flags, void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, exit_callback callback, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);

int qemu_plugin_version = VERSION;

static uint64_t executed;

static void entered(unsigned int processor, void *data)
{
    (void)processor;
    executed += (uintptr_t)data;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, entered, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
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
