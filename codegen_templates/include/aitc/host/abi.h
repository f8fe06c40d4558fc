/* The C interface that every compiled model has, whatever its name. Plain C11; pasted into each model's own header, so
 * that a user needs no other file. */
#ifndef AITC_ABI_H
#define AITC_ABI_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows only when a layout or a meaning below changes; new functions are added at the end of aitc_model and raise
 * `size` alone. */
#define AITC_ABI_VERSION 1

typedef enum aitc_status {
  AITC_OK = 0,
  AITC_BAD_ARGUMENT = 1, /* a null pointer, a wrong count, an unknown name */
  AITC_BAD_INPUT = 2,    /* a tensor's type or shape is not what the model takes */
  AITC_NO_DEVICE = 3,    /* no such device, or one that this library holds no code for */
  AITC_OUT_OF_MEMORY = 4,
  AITC_DEVICE_ERROR = 5, /* the device or its driver failed */
  AITC_FILE_ERROR = 6,   /* the weights cannot be read, or do not belong to this library */
  AITC_INTERNAL = 7
} aitc_status;

/* Element types, numbered as ONNX numbers them (TensorProto.DataType). Sub-byte types take one byte an element. */
typedef enum aitc_dtype {
  AITC_F32 = 1,
  AITC_U8 = 2,
  AITC_I8 = 3,
  AITC_U16 = 4,
  AITC_I16 = 5,
  AITC_I32 = 6,
  AITC_I64 = 7,
  AITC_BOOL = 9,
  AITC_F16 = 10,
  AITC_F64 = 11,
  AITC_U32 = 12,
  AITC_U64 = 13,
  AITC_C64 = 14,
  AITC_C128 = 15,
  AITC_BF16 = 16,
  AITC_F8E4M3FN = 17,
  AITC_F8E4M3FNUZ = 18,
  AITC_F8E5M2 = 19,
  AITC_F8E5M2FNUZ = 20,
  AITC_U4 = 21,
  AITC_I4 = 22,
  AITC_F4E2M1 = 23,
  AITC_F8E8M0 = 24,
  AITC_U2 = 25,
  AITC_I2 = 26
} aitc_dtype;

typedef enum aitc_memory {
  AITC_MEMORY_AUTO = 0, /* ask the driver whose memory it is */
  AITC_MEMORY_HOST = 1,
  AITC_MEMORY_DEVICE = 2
} aitc_memory;

/* A dim that is known at run time: the size of axis `axis` of input `input`, within [lo, hi]. */
typedef struct aitc_symbol {
  const char* name;
  int64_t lo, hi, multiple_of, hint; /* hint: a typical size */
  int32_t input, axis;
} aitc_symbol;

/* One axis of an input or output: size `size` if `text` is null, else the value of the expression `text` over the
 * symbols, e.g. "batch * 4". Where the text names what is no symbol, only the run decides the size (outputs alone). */
typedef struct aitc_axis {
  const char* text;
  int64_t size;
} aitc_axis;

typedef struct aitc_port {
  const char* name; /* as the model spells it */
  int32_t dtype;    /* aitc_dtype */
  int32_t rank;
  const aitc_axis* shape;
  const char* use; /* "", "ids:LIMIT", "length:LIMIT", "count", "mask", "image", "boxes" or "positive": what made-up data has to respect */
} aitc_port;

/* A C-contiguous tensor of the caller. */
typedef struct aitc_tensor {
  void* data;
  const int64_t* shape; /* of outputs it may be null */
  int32_t rank;
  int32_t dtype;  /* aitc_dtype */
  int32_t memory; /* aitc_memory */
} aitc_tensor;

/* One launch in a run that was profiled: when it began and ended, in seconds since the run began. */
typedef struct aitc_span {
  int32_t run, launch;
  double begin, end;
} aitc_span;

typedef struct aitc_instance aitc_instance;

/* What a library exports under the symbol `aitc_model_v1` (a function that returns it). Functions that return a status
 * leave a message for `last_error` of the same thread when it is not AITC_OK. Everything may be called from any thread;
 * runs of one instance take turns. */
typedef struct aitc_model {
  uint32_t abi_version; /* AITC_ABI_VERSION */
  uint32_t size;        /* sizeof(aitc_model) when the library was built */
  const char* name;     /* a C identifier */
  const char* api;      /* "cpu", "cuda" or "hip" */
  const char* targets;  /* comma separated */
  const char* model;    /* the file that it was compiled from */
  const char* digest;   /* SHA-256 of the weights */
  int32_t input_count, output_count, symbol_count, launch_count;
  const aitc_port* inputs;
  const aitc_port* outputs;
  const aitc_symbol* symbols;
  const char* const* launches; /* names, in order */

  /* What went wrong in the last call of this thread that did not return AITC_OK; never null. The text is the thread's:
   * valid until the next such call of the thread to this library, or until the thread ends. Copy it to keep it. */
  const char* (*last_error)(void);
  int (*device_count)(void);
  /* An instance on `device` (0 on cpu). `weights`: a file to read the weights from, null for the library itself or
   * NAME.weights beside it. */
  aitc_status (*create)(int device, const char* weights, aitc_instance** instance);
  /* Null, and an instance that was destroyed before, are let pass. A run that still goes on is finished first. */
  void (*destroy)(aitc_instance* instance);
  /* A short text of what the instance runs on, valid as long as it lives. */
  const char* (*device_name)(const aitc_instance* instance);
  /* Checks the inputs' shapes (their data is not looked at) and writes those of all outputs, one after another: as many
   * numbers as the outputs' ranks add up to. Sizes that only the data decides are -1. */
  aitc_status (*output_shapes)(const aitc_tensor* inputs, size_t input_count, int64_t* shapes);
  /* Runs the model on `stream` (cudaStream_t, hipStream_t; null is the default stream; ignored on cpu). Outputs are
   * written to the caller's memory. With device memory alone the call returns when the work is enqueued, otherwise when
   * the outputs are there. */
  aitc_status (*run)(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, const aitc_tensor* outputs,
                     size_t output_count, void* stream);
  /* Times `iterations` runs after `warmup` untimed ones, on copies of `inputs` (host memory) that already are where the
   * kernels read them; seconds of each run. `launch_seconds`, if not null, gets the mean time of each launch, from
   * separate runs that time every launch by itself. */
  aitc_status (*bench)(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, int warmup,
                       int iterations, double* seconds, double* launch_seconds);
  /* Device memory for callers that have no other means. On cpu, and for device -1: aligned host memory. */
  aitc_status (*allocate)(int device, size_t bytes, void** data);
  void (*release)(int device, void* data);
  aitc_status (*copy)(int device, void* to, const void* from, size_t bytes); /* any direction; returns when done */
  /* Like `run`, for outputs whose sizes only the data decides; returns when they are there. `shapes` gets all outputs'
   * actual shapes, one after another. Outputs without data get memory (of the device if their `memory` says so, else of
   * the host), which the caller gives back: `release` with the device, or with -1 for host memory. Data that is given has
   * to hold what comes: as much as the tensor's shape says. */
  aitc_status (*run_sized)(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, aitc_tensor* outputs,
                           size_t output_count, int64_t* shapes, void* stream);
  /* Runs the model `runs` times after `warmup` times, on data as in `bench`, and says when each launch began and ended:
   * run after run, in order. `chosen`, if not null, has a flag for each launch, and the others are left out. The spans
   * are the instance's, valid until its next profile. */
  aitc_status (*profile)(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, int warmup, int runs,
                         const uint8_t* chosen, const aitc_span** spans, size_t* count);
  /* Like `bench`, without the times of single launches. `chosen`, if not null, has a flag for each launch, and those whose
   * flag is 0 are left out, and so is what they compute. */
  aitc_status (*bench_chosen)(aitc_instance* instance, const aitc_tensor* inputs, size_t input_count, const uint8_t* chosen,
                              int warmup, int iterations, double* seconds);
} aitc_model;

#ifdef __cplusplus
}
#endif
#endif
