// Reads and writes .npy files (versions 1 to 3), C-contiguous in memory.
#pragma once
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "aitc/host/abi.h"
#include "aitc/host/errors.h"

namespace aitc::host {

struct Array {
  int dtype = AITC_F32;
  std::vector<int64_t> shape;
  std::vector<char> data;
};

struct NpyType {
  const char* text;  // of the descr, without the byte order
  int dtype;
};
// numpy has no names for the types below the line: ml_dtypes writes them as raw bytes, so what they are is what the
// model takes.
inline constexpr NpyType npy_types[] = {{"f4", AITC_F32}, {"u1", AITC_U8},   {"i1", AITC_I8},  {"u2", AITC_U16},
                                        {"i2", AITC_I16}, {"i4", AITC_I32},  {"i8", AITC_I64}, {"b1", AITC_BOOL},
                                        {"f2", AITC_F16}, {"f8", AITC_F64},  {"u4", AITC_U32}, {"u8", AITC_U64},
                                        {"c8", AITC_C64}, {"c16", AITC_C128}};

inline int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

// Value of a key in the header's Python dict literal, up to the comma or bracket that ends it.
inline std::string npy_field(const std::string& header, const char* key, const std::string& path) {
  size_t at = header.find(std::string("'") + key + "'");
  at = at == std::string::npos ? at : header.find(':', at);
  if (at == std::string::npos)
    throw Error(AITC_FILE_ERROR, format("%s: no '%s' in the header of this .npy file", path.c_str(), key));
  at = header.find_first_not_of(' ', at + 1);
  if (at == std::string::npos)
    throw Error(AITC_FILE_ERROR, format("%s: the header of this .npy file ends after '%s'", path.c_str(), key));
  const size_t end = header[at] == '(' ? header.find(')', at) + 1 : header.find_first_of(",}", at);
  return header.substr(at, end - at);
}

// Turns Fortran order into C order.
inline void transpose_order(Array& array, size_t item) {
  std::vector<char> result(array.data.size());
  const size_t rank = array.shape.size(), count = size_t(element_count(array.shape));
  std::vector<int64_t> index(rank, 0), stride(rank, 1);
  for (size_t axis = 1; axis < rank; ++axis) stride[axis] = stride[axis - 1] * array.shape[axis - 1];
  for (size_t i = 0; i < count; ++i) {
    int64_t from = 0;
    for (size_t axis = 0; axis < rank; ++axis) from += index[axis] * stride[axis];
    memcpy(&result[i * item], &array.data[size_t(from) * item], item);
    for (size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < array.shape[axis]) break;
      index[axis] = 0;
    }
  }
  array.data.swap(result);
}

// `wanted`: the type that the model takes, which decides what raw bytes (bfloat16, float8 ...) are.
inline Array read_npy(const std::string& path, int wanted, int wanted_bytes) {
  struct File {
    FILE* f;
    ~File() {
      if (f) fclose(f);
    }
  } file{fopen(path.c_str(), "rb")};
  if (file.f == nullptr) throw Error(AITC_FILE_ERROR, format("cannot read %s: %s", path.c_str(), strerror(errno)));
  const auto read = [&](void* to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, file.f) != bytes)
      throw Error(AITC_FILE_ERROR, format("%s is truncated", path.c_str()));
  };
  unsigned char start[8], length[4] = {0, 0, 0, 0};
  read(start, 8);
  if (memcmp(start, "\x93NUMPY", 6) != 0) throw Error(AITC_FILE_ERROR, format("%s is not a .npy file", path.c_str()));
  read(length, start[6] == 1 ? 2 : 4);
  std::string header(size_t(length[0]) | size_t(length[1]) << 8 | size_t(length[2]) << 16 | size_t(length[3]) << 24,
                     '\0');
  if (header.size() > (1u << 20))
    throw Error(AITC_FILE_ERROR, format("%s: a .npy header of %zu bytes", path.c_str(), header.size()));
  read(&header[0], header.size());

  Array array;
  std::string descr = npy_field(header, "descr", path);
  if (descr.size() < 4 || descr[0] != '\'')
    throw Error(AITC_FILE_ERROR, format("%s: element type %s is not supported", path.c_str(), descr.c_str()));
  descr = descr.substr(1, descr.size() - 2);
  if (descr[0] == '>' && descr.substr(2) != "1") throw Error(AITC_FILE_ERROR, format("%s is big-endian", path.c_str()));
  const std::string kind = descr.find_first_of("<>|=") == 0 ? descr.substr(1) : descr;
  array.dtype = 0;
  size_t item = 0;
  for (const NpyType& type : npy_types)
    if (kind == type.text) array.dtype = type.dtype, item = size_t(atoi(type.text + 1));
  const bool named = array.dtype != 0;
  if (kind[0] == 'V' && atoi(kind.c_str() + 1) == wanted_bytes) array.dtype = wanted, item = size_t(wanted_bytes);
  else if (!named)
    throw Error(AITC_FILE_ERROR, format("%s: element type %s is not supported", path.c_str(), descr.c_str()));
  const std::string shape = npy_field(header, "shape", path);
  for (const char* p = shape.c_str(); *p;) {
    if (*p >= '0' && *p <= '9') array.shape.push_back(strtoll(p, const_cast<char**>(&p), 10));
    else ++p;
  }
  size_t bytes = item;
  for (int64_t size : array.shape)
    if (__builtin_mul_overflow(bytes, size_t(size), &bytes) || bytes > size_t(INT64_MAX))
      throw Error(AITC_FILE_ERROR, format("%s: no memory holds the shape %s", path.c_str(), shape.c_str()));
  array.data.resize(bytes);
  read(array.data.data(), array.data.size());
  if (npy_field(header, "fortran_order", path) == "True" && array.shape.size() > 1) transpose_order(array, item);
  return array;
}

inline void write_npy(const std::string& path, const Array& array, int item_bytes) {
  std::string descr = "|V" + std::to_string(item_bytes);
  for (const NpyType& type : npy_types)
    if (type.dtype == array.dtype) descr = (item_bytes == 1 ? "|" : "<") + std::string(type.text);
  if (array.dtype == AITC_U4 || array.dtype == AITC_U2) descr = "|u1";
  if (array.dtype == AITC_I4 || array.dtype == AITC_I2) descr = "|i1";
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : array.shape) header += std::to_string(size) + ", ";
  header += "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const char start[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, char(header.size() & 255), char(header.size() >> 8)};
  FILE* file = fopen(path.c_str(), "wb");
  if (file == nullptr) throw Error(AITC_FILE_ERROR, format("cannot write %s: %s", path.c_str(), strerror(errno)));
  bool good = fwrite(start, 1, 10, file) == 10 && fwrite(header.data(), 1, header.size(), file) == header.size();
  good = good && (array.data.empty() || fwrite(array.data.data(), 1, array.data.size(), file) == array.data.size());
  int problem = good ? 0 : errno;
  if (fclose(file) != 0 && problem == 0) problem = errno;
  if (problem != 0) {
    struct stat status;
    if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) remove(path.c_str());  // half a file misleads
    throw Error(AITC_FILE_ERROR, format("cannot write %s: %s", path.c_str(), strerror(problem)));
  }
}

}  // namespace aitc::host
