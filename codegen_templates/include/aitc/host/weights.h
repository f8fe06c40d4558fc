// The weights: one blob, read by mmap, at the end of the library or in a file beside it.
//
// Layout of the end of either file: the blob, beginning at a multiple of 4096, then a footer of 128 bytes:
//   "AITCWGT1"  8 bytes | uint64 bytes of the blob | SHA-256 of the blob in hex, 64 bytes | zeros
#pragma once
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include "aitc/host/errors.h"

namespace aitc::host {

struct WeightsFooter {
  char magic[8];
  uint64_t bytes;
  char digest[64];
  char zeros[48];
};
static_assert(sizeof(WeightsFooter) == 128, "the footer is a file format");

// A file descriptor that closes itself.
struct Descriptor {
  int value;
  explicit Descriptor(int value) : value(value) {}
  ~Descriptor() {
    if (value >= 0) close(value);
  }
  Descriptor(const Descriptor&) = delete;
};

class Weights {
 public:
  Weights() = default;
  Weights(const Weights&) = delete;
  ~Weights() {
    if (data_) munmap(data_, size_t(bytes_));
  }
  const char* data() const { return static_cast<const char*>(data_); }
  uint64_t bytes() const { return bytes_; }

  // Maps the weights at the end of `path`. False if the file ends in no footer; throws if there is one that does not
  // fit.
  bool open_file(const std::string& path, const char* digest, uint64_t bytes) {
    Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe is not waited for
    struct stat info;
    if (file.value < 0 || fstat(file.value, &info) != 0)
      throw Error(AITC_FILE_ERROR, format("cannot read %s: %s", path.c_str(), strerror(errno)));
    if (!S_ISREG(info.st_mode)) throw Error(AITC_FILE_ERROR, format("%s is no regular file", path.c_str()));
    WeightsFooter footer;
    const uint64_t size = uint64_t(info.st_size);
    if (size < sizeof(footer) ||
        pread(file.value, &footer, sizeof(footer), off_t(size - sizeof(footer))) != ssize_t(sizeof(footer)) ||
        memcmp(footer.magic, "AITCWGT1", 8) != 0)
      return false;
    if (memcmp(footer.digest, digest, 64) != 0 || footer.bytes != bytes)
      throw Error(AITC_FILE_ERROR, format("%s holds the weights of another model, or was replaced after the library "
                                          "was loaded (SHA-256 %.64s, expected %s)",
                                          path.c_str(), footer.digest, digest));
    const uint64_t offset = size - sizeof(footer) - bytes;
    if (size - sizeof(footer) < bytes || offset % 4096 != 0)
      throw Error(AITC_FILE_ERROR, format("%s is truncated", path.c_str()));
    void* data = mmap(nullptr, size_t(bytes), PROT_READ, MAP_PRIVATE, file.value, off_t(offset));
    if (data == MAP_FAILED) throw Error(AITC_FILE_ERROR, format("cannot map %s: %s", path.c_str(), strerror(errno)));
    madvise(data, size_t(bytes), MADV_WILLNEED);
    data_ = data;
    bytes_ = bytes;
    return true;
  }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Absolute path of the library (or program) that this code is in, as it was when it was loaded: later changes of the
// working directory do not matter.
inline std::string find_library() {
  Dl_info info;
  char resolved[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&find_library), &info) == 0 || info.dli_fname == nullptr) return "";
  return realpath(info.dli_fname, resolved) ? resolved : info.dli_fname;
}
inline const std::string library_path = find_library();

// Finds the weights: `path` if given, else the library's own tail, else NAME.weights beside it.
inline void open_weights(Weights& weights, const char* path, const char* name, const char* digest, uint64_t bytes) {
  if (bytes == 0) return;
  if (path != nullptr) {
    if (!weights.open_file(path, digest, bytes))
      throw Error(AITC_FILE_ERROR, format("%s is not a file of weights", path));
    return;
  }
  if (weights.open_file(library_path, digest, bytes)) return;
  const std::string beside = library_path.substr(0, library_path.rfind('/') + 1) + name + ".weights";
  if (access(beside.c_str(), R_OK) != 0)
    throw Error(AITC_FILE_ERROR, format("%s holds no weights (stripped, or copied in part?) and %s cannot be read: %s",
                                        library_path.c_str(), beside.c_str(), strerror(errno)));
  if (!weights.open_file(beside, digest, bytes))
    throw Error(AITC_FILE_ERROR, format("%s is not a file of weights", beside.c_str()));
}

}  // namespace aitc::host
