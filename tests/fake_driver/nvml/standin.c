/*
 * A stand-in for NVIDIA's libnvidia-ml.so.1: as much of NVML as the driver asks for, of GPUs that a file describes.
 * The file is the one that NVML_STANDIN names, read anew on every call, so what it says can change at any time:
 *
 *   driver VERSION CUDA                       of the whole machine
 *   gpu MODEL MINOR                           one line a GPU, in NVML's order
 *   mig GPU GI CI PROFILE START SIZE MIB SMS COPY DEC ENC JPEG OFA GSLICES CSLICES
 *   ecc GPU COUNT                             uncorrectable errors
 *   fail GPU FUNCTION CODE                    a refusal; FUNCTION * is all, GPU -1 what belongs to no GPU
 *   hang FUNCTION                             no answer as long as the line is there
 *   event NUMBER GPU TYPE DATA GI CI          delivered once, in order of growing numbers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_GPUS 16
#define MAX_MIG 32
#define MAX_FAULTS 64
#define POLL_MS 5

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    OPERATING_SYSTEM = 17,
};

typedef struct {
    const char *key, *name;
    unsigned brand, architecture;
    int major, minor;
    unsigned long long memory; /* bytes, 0: not supported */
    int addressing;            /* -1: not supported */
    int has_mig, has_ecc;
    unsigned long long events;
} Model;

static const Model MODELS[] = {
    {"a100", "NVIDIA A100-SXM4-40GB", 14, 7, 8, 0, 42949672960ULL, 0, 1, 1, 0x0a},
    {"h100", "NVIDIA H100 80GB HBM3", 14, 9, 9, 0, 85520809984ULL, 1, 1, 1, 0x0a},
    {"gb10", "NVIDIA GB10", 14, 10, 12, 1, 0, 2, 0, 0, 0x08},
    {"k80", "Tesla K80", 2, 2, 3, 7, 11996758016ULL, -1, 0, 1, 0},
};

struct device { int gpu, mig; }; /* mig is -1 for the GPU itself */
typedef struct device *Device;

typedef struct {
    unsigned gpu, gi, ci, profile, start, size;
    unsigned long long mib;
    unsigned sms, copy, dec, enc, jpeg, ofa, gslices, cslices;
} Mig;

typedef struct { int gpu; char function[64]; int code; } Fault;
typedef struct { unsigned long long number, type, data; int gpu; unsigned gi, ci; } Event;

typedef struct {
    char driver[80];
    int cuda;
    int gpus, migs, faults, hangs, events;
    const Model *model[MAX_GPUS];
    unsigned minor[MAX_GPUS];
    unsigned long long ecc[MAX_GPUS];
    Mig mig[MAX_MIG];
    Fault fault[MAX_FAULTS];
    char hang[MAX_FAULTS][64];
    Event event[MAX_FAULTS];
} Machine;

typedef struct { unsigned long long mask[MAX_GPUS]; int spoiled; } EventSet;

static struct device gpu_handles[MAX_GPUS], mig_handles[MAX_MIG];
static int sessions;
static unsigned long long delivered; /* number of the last event */

static const Model *model_of(const char *key) {
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strcmp(MODELS[i].key, key) == 0) return &MODELS[i];
    return NULL;
}

static void read_line(Machine *m, const char *line) {
    char key[64];
    unsigned minor;
    int gpu;
    unsigned long long count;
    Mig *mig = &m->mig[m->migs];
    Fault *fault = &m->fault[m->faults];
    Event *event = &m->event[m->events];
    if (sscanf(line, "driver %79s %d", m->driver, &m->cuda) == 2) return;
    if (m->gpus < MAX_GPUS && sscanf(line, "gpu %63s %u", key, &minor) == 2) {
        m->minor[m->gpus] = minor;
        m->model[m->gpus++] = model_of(key);
    } else if (m->migs < MAX_MIG &&
               sscanf(line, "mig %u %u %u %u %u %u %llu %u %u %u %u %u %u %u %u", &mig->gpu, &mig->gi, &mig->ci,
                      &mig->profile, &mig->start, &mig->size, &mig->mib, &mig->sms, &mig->copy, &mig->dec, &mig->enc,
                      &mig->jpeg, &mig->ofa, &mig->gslices, &mig->cslices) == 15) {
        m->migs++;
    } else if (sscanf(line, "ecc %d %llu", &gpu, &count) == 2 && gpu >= 0 && gpu < MAX_GPUS) {
        m->ecc[gpu] = count;
    } else if (m->faults < MAX_FAULTS &&
               sscanf(line, "fail %d %63s %d", &fault->gpu, fault->function, &fault->code) == 3) {
        m->faults++;
    } else if (m->hangs < MAX_FAULTS && sscanf(line, "hang %63s", m->hang[m->hangs]) == 1) {
        m->hangs++;
    } else if (m->events < MAX_FAULTS &&
               sscanf(line, "event %llu %d %llu %llu %u %u", &event->number, &event->gpu, &event->type, &event->data,
                      &event->gi, &event->ci) == 6) {
        m->events++;
    }
}

static int read_machine(Machine *m) {
    char line[256];
    const char *path = getenv("NVML_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    memset(m, 0, sizeof *m);
    if (!file) return OPERATING_SYSTEM;
    while (fgets(line, sizeof line, file)) read_line(m, line);
    fclose(file);
    for (int i = 0; i < m->gpus; i++)
        if (!m->model[i]) return INVALID_ARGUMENT;
    return OK;
}

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static int hangs(const Machine *m, const char *function) {
    for (int i = 0; i < m->hangs; i++)
        if (strcmp(m->hang[i], function) == 0) return 1;
    return 0;
}

static int fault_of(const Machine *m, const char *function, int gpu) {
    for (int i = 0; i < m->faults; i++)
        if (m->fault[i].gpu == gpu && (!strcmp(m->fault[i].function, "*") || !strcmp(m->fault[i].function, function)))
            return m->fault[i].code;
    return OK;
}

/* What every function begins with: read the file, hang as long as it says so, fail if it says so. */
static int begin(Machine *m, const char *function, int gpu) {
    int code;
    if (!sessions && strcmp(function, "nvmlInitWithFlags")) return UNINITIALIZED;
    while ((code = read_machine(m)) == OK && hangs(m, function)) pause_ms(POLL_MS);
    if (code != OK) return code;
    if (gpu >= m->gpus) return NOT_FOUND;
    code = fault_of(m, function, gpu);
    if (code == DRIVER_NOT_LOADED) sessions = 0; /* a session doesn't outlive the driver */
    return code;
}

#define BEGIN(gpu)                         \
    Machine m;                             \
    int code = begin(&m, __func__, (gpu)); \
    if (code != OK) return code

#define NEEDS(condition) \
    if (!(condition)) return NOT_SUPPORTED

#define OF_GPU                                          \
    if (!device || device->mig >= 0) return INVALID_ARGUMENT; \
    BEGIN(device->gpu);                                 \
    const Model *model = m.model[device->gpu];          \
    (void)model

#define OF_MIG                                                           \
    if (!device || device->mig < 0) return INVALID_ARGUMENT;             \
    BEGIN(device->gpu);                                                  \
    if (device->mig >= m.migs) return NOT_FOUND;                         \
    const Mig *mig = &m.mig[device->mig]

static int text(char *to, unsigned length, const char *from) {
    if (strlen(from) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return OK;
}

static int has_mig_devices(const Machine *m, int gpu) {
    for (int i = 0; i < m->migs; i++)
        if ((int)m->mig[i].gpu == gpu) return 1;
    return fault_of(m, "mig-without-devices", gpu) != OK;
}

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    BEGIN(-1);
    if (sessions++ == 0) {
        delivered = 0;
        for (int i = 0; i < MAX_GPUS; i++) gpu_handles[i] = (struct device){i, -1};
    }
    return OK;
}

EXPORT int nvmlShutdown(void) {
    if (!sessions) return UNINITIALIZED;
    sessions--;
    return OK;
}

EXPORT const char *nvmlErrorString(int code) {
    static char message[32];
    snprintf(message, sizeof message, "error %d", code);
    return message;
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    BEGIN(-1);
    return text(version, length, m.driver);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
    BEGIN(-1);
    *version = m.cuda;
    return OK;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN(-1);
    *count = (unsigned)m.gpus;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    if (index >= MAX_GPUS) return INVALID_ARGUMENT;
    BEGIN((int)index);
    *device = &gpu_handles[index];
    return OK;
}

EXPORT int nvmlDeviceGetUUID(Device device, char *uuid, unsigned length) {
    char own[80];
    if (!device) return INVALID_ARGUMENT;
    BEGIN(device->gpu);
    if (device->mig >= 0) {
        if (device->mig >= m.migs) return NOT_FOUND;
        snprintf(own, sizeof own, "MIG-00000000-0000-4000-8000-%04x%04x%04x", m.minor[device->gpu],
                 m.mig[device->mig].gi, m.mig[device->mig].ci);
    } else {
        snprintf(own, sizeof own, "GPU-00000000-0000-4000-8000-%012x", m.minor[device->gpu]);
    }
    return text(uuid, length, own);
}

EXPORT int nvmlDeviceGetMinorNumber(Device device, unsigned *minor) {
    OF_GPU;
    *minor = m.minor[device->gpu];
    return OK;
}

EXPORT int nvmlDeviceGetName(Device device, char *name, unsigned length) {
    OF_GPU;
    return text(name, length, model->name);
}

EXPORT int nvmlDeviceGetBrand(Device device, unsigned *brand) {
    OF_GPU;
    *brand = model->brand;
    return OK;
}

EXPORT int nvmlDeviceGetArchitecture(Device device, unsigned *architecture) {
    OF_GPU;
    *architecture = model->architecture;
    return OK;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    OF_GPU;
    *major = model->major;
    *minor = model->minor;
    return OK;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} PciInfo;

EXPORT int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) {
    OF_GPU;
    memset(info, 0, sizeof *info);
    info->bus = 0x1b + 0x20 * m.minor[device->gpu];
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", info->bus & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus & 0xff);
    return OK;
}

typedef struct { unsigned long long total, free, used; } Memory;

EXPORT int nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    OF_GPU;
    NEEDS(model->memory);
    *memory = (Memory){model->memory, model->memory, 0};
    return OK;
}

typedef struct { unsigned version, value; } AddressingMode;

EXPORT int nvmlDeviceGetAddressingMode(Device device, AddressingMode *mode) {
    OF_GPU;
    NEEDS(model->addressing >= 0);
    mode->value = (unsigned)model->addressing;
    return OK;
}

EXPORT int nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned counter, unsigned long long *count) {
    OF_GPU;
    NEEDS(model->has_ecc);
    *count = type == 1 && counter == 0 ? m.ecc[device->gpu] : 0; /* uncorrected, volatile */
    return OK;
}

EXPORT int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    OF_GPU;
    NEEDS(model->has_mig);
    *current = *pending = (unsigned)has_mig_devices(&m, device->gpu);
    return OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    OF_GPU;
    *count = model->has_mig ? 7 : 0;
    return OK;
}

/* Index 1 stays free, as after a MIG device was destroyed: callers must go on behind it. */
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *mig) {
    OF_GPU;
    unsigned at = 0;
    for (int i = 0; i < m.migs; i++) {
        if ((int)m.mig[i].gpu != device->gpu) continue;
        if (at == 1) at++;
        if (at++ != index) continue;
        mig_handles[i] = (struct device){device->gpu, i};
        *mig = &mig_handles[i];
        return OK;
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetGpuInstanceId(Device device, unsigned *id) {
    OF_MIG;
    *id = mig->gi;
    return OK;
}

EXPORT int nvmlDeviceGetComputeInstanceId(Device device, unsigned *id) {
    OF_MIG;
    *id = mig->ci;
    return OK;
}

typedef struct {
    unsigned sms, copy, dec, enc, jpeg, ofa, gslices, cslices;
    unsigned long long mib;
} Attributes;

EXPORT int nvmlDeviceGetAttributes_v2(Device device, Attributes *attributes) {
    OF_MIG;
    *attributes = (Attributes){mig->sms,  mig->copy, mig->dec,     mig->enc,     mig->jpeg,
                               mig->ofa, mig->gslices, mig->cslices, mig->mib};
    return OK;
}

EXPORT int nvmlDeviceGetGpuInstanceById(Device device, unsigned id, Device *instance) {
    OF_GPU;
    for (int i = 0; i < m.migs; i++) {
        if ((int)m.mig[i].gpu != device->gpu || m.mig[i].gi != id) continue;
        mig_handles[i] = (struct device){device->gpu, i};
        *instance = &mig_handles[i];
        return OK;
    }
    return NOT_FOUND;
}

typedef struct { Device device; unsigned id, profile, start, size; } GpuInstanceInfo;

EXPORT int nvmlGpuInstanceGetInfo(Device device, GpuInstanceInfo *info) {
    OF_MIG;
    *info = (GpuInstanceInfo){&gpu_handles[device->gpu], mig->gi, mig->profile, mig->start, mig->size};
    return OK;
}

EXPORT int nvmlEventSetCreate(EventSet **set) {
    BEGIN(-1);
    *set = calloc(1, sizeof **set);
    return *set ? OK : OPERATING_SYSTEM;
}

EXPORT int nvmlEventSetFree(EventSet *set) {
    free(set);
    return OK;
}

EXPORT int nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types) {
    OF_GPU;
    NEEDS(model->events);
    *types = model->events;
    return OK;
}

EXPORT int nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet *set) {
    OF_GPU;
    NEEDS((types & ~model->events) == 0 && types);
    set->mask[device->gpu] |= types;
    return OK;
}

typedef struct {
    Device device;
    unsigned long long type, data;
    unsigned gi, ci;
} EventData;

/* A set with a lost GPU in it fails at once, and is of no use any more. */
EXPORT int nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned timeout) {
    for (unsigned waited = 0;; waited += POLL_MS) {
        BEGIN(-1);
        for (int i = 0; i < MAX_GPUS; i++)
            if (set->mask[i] && fault_of(&m, __func__, i) == GPU_IS_LOST) set->spoiled = 1;
        if (set->spoiled) return GPU_IS_LOST;
        for (int i = 0; i < m.events; i++) {
            const Event *event = &m.event[i];
            if (event->number <= delivered || event->gpu < 0 || event->gpu >= MAX_GPUS) continue;
            delivered = event->number;
            if (!(set->mask[event->gpu] & event->type)) continue;
            *data = (EventData){&gpu_handles[event->gpu], event->type, event->data, event->gi, event->ci};
            return OK;
        }
        if (waited >= timeout) return TIMEOUT;
        pause_ms(POLL_MS);
    }
}
