/*
 * Counts Python's memory allocations, for tests.
 *
 * Once installed, every malloc and calloc, and every realloc of nothing, of the domains "object"
 * and "mem" adds one to a counter. The counter lies in a file that is mapped shared, so that
 * another process can read it at any moment without asking.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t *counter;
static PyMemAllocatorEx original[2];

static inline void count(void)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static void *counted_malloc(void *context, size_t size)
{
    PyMemAllocatorEx *allocator = context;
    count();
    return allocator->malloc(allocator->ctx, size);
}

static void *counted_calloc(void *context, size_t number, size_t size)
{
    PyMemAllocatorEx *allocator = context;
    count();
    return allocator->calloc(allocator->ctx, number, size);
}

static void *counted_realloc(void *context, void *memory, size_t size)
{
    PyMemAllocatorEx *allocator = context;
    if (!memory)
        count();
    return allocator->realloc(allocator->ctx, memory, size);
}

static void plain_free(void *context, void *memory)
{
    PyMemAllocatorEx *allocator = context;
    allocator->free(allocator->ctx, memory);
}

static PyObject *install(PyObject *module, PyObject *arguments)
{
    static const PyMemAllocatorDomain domains[2] = {PYMEM_DOMAIN_OBJ, PYMEM_DOMAIN_MEM};
    const char *path;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "s", &path))
        return NULL;
    if (counter) {
        PyErr_SetString(PyExc_RuntimeError, "the counter is installed already");
        return NULL;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 8) < 0)
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    void *mapped = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    counter = mapped;
    for (int i = 0; i < 2; i++) {
        PyMemAllocatorEx counted = {&original[i], counted_malloc, counted_calloc, counted_realloc,
                                    plain_free};
        PyMem_GetAllocator(domains[i], &original[i]);
        PyMem_SetAllocator(domains[i], &counted);
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, "Starts counting into the file at this path (a u64)."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "allocations", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_allocations(void)
{
    return PyModule_Create(&definition);
}
