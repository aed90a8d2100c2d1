/* A CUDA driver that does nothing: it says that there are two GPUs of compute capability 9.0, takes whatever it is told,
   and keeps the last launch. So everything above the driver runs without a GPU. Functions that are not named here exist
   and succeed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int Result;
typedef uintptr_t Handle;

static __thread Handle context;
static long launches;
static uint64_t arguments[16];
static unsigned shape[6];
static Handle stream, launched_in, kernel;
static int parameters;
static Handle loaded;

/* For the tests. */
long launches_seen(void) { return launches; }
void expect_parameters(int count) { parameters = count; }
const uint64_t *last_arguments(void) { return arguments; }
const unsigned *last_shape(void) { return shape; }
uint64_t last_stream(void) { return stream; }
uint64_t last_context(void) { return launched_in; }
uint64_t last_kernel(void) { return kernel; }

static Result nothing(void) { return 0; }

Result cuDriverGetVersion(int *version) { *version = 13000; return 0; }
Result cuDeviceGetCount(int *count) { *count = 2; return 0; }
Result cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
Result cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "GPU %d", device); return 0; }
Result cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, device + 1, 16); return 0; }
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 75: *value = 9; break;      /* compute capability, major */
    case 76: *value = 0; break;      /* minor */
    case 10: *value = 32; break;     /* threads of a warp */
    default: *value = 1024;
    }
    return 0;
}
Result cuDevicePrimaryCtxRetain(Handle *primary, int device) { *primary = 0x1000 + device; return 0; }
Result cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { (void)device; *flags = 0; *active = 1; return 0; }
Result cuCtxGetCurrent(Handle *current) { *current = context; return 0; }
Result cuCtxSetCurrent(Handle new) { context = new; return 0; }
Result cuCtxPushCurrent_v2(Handle new) { context = new; return 0; }
Result cuCtxPopCurrent_v2(Handle *old) { if (old) *old = context; context = 0; return 0; }
Result cuCtxGetDevice(int *device) { *device = (int)(context - 0x1000); return 0; }
Result cuLibraryLoadData(Handle *library, const void *code, void *a, void *b, unsigned n, void *c, void *d, unsigned m) {
    (void)code; (void)a; (void)b; (void)n; (void)c; (void)d; (void)m;
    *library = 0x40000 + ++loaded;
    return 0;
}
Result cuLibraryGetKernel(Handle *found, Handle library, const char *name) { (void)name; *found = library + 0x10000; return 0; }
Result cuKernelGetFunction(Handle *function, Handle of) { *function = of; return 0; }
Result cuKernelGetAttribute(int *value, int attribute, Handle of, int device) {
    (void)attribute; (void)of; (void)device;
    *value = 32;
    return 0;
}
Result cuLaunchKernelEx(const void *config, Handle function, void **given, void **extra) {
    (void)extra;
    launches++;
    memcpy(shape, config, sizeof shape);
    /* After the six sizes and the bytes of shared memory, aligned. */
    memcpy(&stream, (const char *)config + 32, sizeof stream);
    launched_in = context;
    kernel = function;
    for (int i = 0; i < parameters; i++) memcpy(&arguments[i], given[i], 8);
    return 0;
}
Result cuLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Handle on, void **given, void **extra) {
    struct { unsigned sizes[6], shared, none; Handle on; } config = {{gx, gy, gz, bx, by, bz}, shared, 0, on};
    return cuLaunchKernelEx(&config, function, given, extra);
}
Result cuGetErrorString(int error, const char **text) { (void)error; *text = "an error"; return 0; }
Result cuGetErrorName(int error, const char **text) { (void)error; *text = "ERROR"; return 0; }

Result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version; (void)flags;
    Dl_info self;
    char versioned[256];
    dladdr((void *)cuGetProcAddress_v2, &self);
    void *library = dlopen(self.dli_fname, RTLD_NOW);
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *function = dlsym(library, versioned);
    if (!*function) *function = dlsym(library, name);
    if (!*function) *function = (void *)nothing;
    if (status) *status = 0;
    return 0;
}
Result cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, 0);
}
Result cuInit(unsigned flags) { (void)flags; return 0; }
