// The command that comes with every compiled model: runs it on .npy files or on made-up inputs, and times it.
#pragma once
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "aitc/host/abi.h"
#include "aitc/host/axis.h"
#include "aitc/host/npy.h"
#include "aitc/host/program.h"
#include "aitc/host/random.h"

namespace aitc::host {

// Exit codes, the same as aitc's own.
enum Exit { exit_ok = 0, exit_internal = 1, exit_usage = 2, exit_io = 7, exit_runtime = 8 };

struct Options {
  std::map<std::string, std::string> inputs;
  std::map<std::string, int64_t> dims;
  std::string output_dir, weights;
  bool bench = false, profile = false, json = false;
  int iterations = 100, warmup = 10, device = 0;
  uint64_t seed = 0;
};

struct UsageError : Error {
  explicit UsageError(const std::string& text) : Error(AITC_BAD_ARGUMENT, text) {}
};

inline void print_help(const aitc_model& model) {
  printf("usage: %s [options]\n\nRuns %s (%s, compiled for %s) once and prints what its outputs are.\n\n", model.name,
         model.name, model.model, model.targets);
  printf(
      "  --input NAME=FILE.npy   an input; inputs that are not given are made up (repeatable)\n"
      "  --dim NAME=SIZE         size of a dim of made-up inputs (repeatable)\n"
      "  --output-dir DIR        write each output to DIR/NAME.npy\n"
      "  --bench                 time it: latency percentiles\n"
      "  --profile               time it: each launch by itself\n"
      "  --iters N --warmup N    timed and untimed runs (100, 10)\n"
      "  --device N              which device (0)\n"
      "  --weights FILE          read the weights from FILE\n"
      "  --seed N                of made-up inputs (0)\n"
      "  --json                  print the result as JSON\n"
      "  -h, --help\n\nexit codes: 0 done, 2 wrong arguments or inputs, 7 a file cannot be read or written, 8 the "
      "device failed, 1 anything else\n");
}

inline int64_t parse_number(const std::string& flag, const std::string& text, int64_t least,
                            int64_t most = std::numeric_limits<int>::max()) {
  char* end = nullptr;
  errno = 0;
  const long long value = strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || value < least || value > most)
    throw UsageError(format("%s takes a number of at least %lld and at most %lld, given \"%s\"", flag.c_str(),
                            static_cast<long long>(least), static_cast<long long>(most), text.c_str()));
  return value;
}

// The identifier that stands for the name of a dim, as in "model_dim_0" for "model_dim.0".
inline std::string identifier(const std::string& name) {
  std::string text;
  for (const char c : name) text += isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return text;
}

inline Options parse_options(const aitc_model& model, int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i], value;
    const size_t equals = flag.find('=');
    const bool joined = flag.compare(0, 2, "--") == 0 && equals != std::string::npos;
    if (joined) value = flag.substr(equals + 1), flag.erase(equals);
    const auto argument = [&]() -> const std::string& {
      if (joined) return value;
      if (i + 1 >= argc) throw UsageError(flag + " needs a value");
      return value = argv[++i];
    };
    const auto named = [&](const char* example) {
      const std::string text = argument();
      const size_t at = text.rfind('=');
      if (at == std::string::npos || at == 0)
        throw UsageError(format("%s takes %s, given \"%s\"", flag.c_str(), example, text.c_str()));
      return std::make_pair(text.substr(0, at), text.substr(at + 1));
    };
    if (flag == "--input") {
      named("NAME=FILE.npy");
      const std::string text = value;
      std::string name, names;  // the name and the path may hold "=": the longest name that fits is meant
      for (int p = 0; p < model.input_count; ++p) {
        const std::string known = model.inputs[p].name;
        names += (p ? ", " : "") + known;
        if (text.compare(0, known.size() + 1, known + "=") == 0 && known.size() >= name.size()) name = known;
      }
      if (name.empty())
        throw UsageError(format("%s has no input \"%s\"; it has: %s", model.name,
                                text.substr(0, text.find('=')).c_str(), names.c_str()));
      options.inputs[name] = text.substr(name.size() + 1);
    } else if (flag == "--dim") {
      const auto pair = named("NAME=SIZE");
      const aitc_symbol* const all = model.symbols + model.symbol_count;
      const aitc_symbol* const symbol = std::find_if(model.symbols, all, [&](const aitc_symbol& s) {
        return s.name == pair.first || s.name == identifier(pair.first);
      });
      if (symbol == all) throw UsageError(format("%s has no dim \"%s\"", model.name, pair.first.c_str()));
      options.dims[symbol->name] = parse_number("--dim " + pair.first, pair.second, symbol->lo, symbol->hi);
    } else if (flag == "--output-dir") options.output_dir = argument();
    else if (flag == "--weights") options.weights = argument();
    else if (flag == "--bench") options.bench = true;
    else if (flag == "--profile") options.profile = true;
    else if (flag == "--json") options.json = true;
    else if (flag == "--iters") options.iterations = int(parse_number(flag, argument(), 1));
    else if (flag == "--warmup") options.warmup = int(parse_number(flag, argument(), 0));
    else if (flag == "--device") options.device = int(parse_number(flag, argument(), 0));
    else if (flag == "--seed") options.seed = uint64_t(parse_number(flag, argument(), 0, std::numeric_limits<int64_t>::max()));
    else if (flag == "-h" || flag == "--help") {
      print_help(model);
      exit(exit_ok);
    } else throw UsageError(format("unknown option %s; see --help", argv[i]));
  }
  return options;
}

inline void check(const aitc_model& model, aitc_status status) {
  if (status != AITC_OK) throw Error(status, model.last_error());
}

inline std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') out += '\\', out += char(c);
    else if (c < 32) out += format("\\u%04x", c);
    else out += char(c);
  }
  return out + "\"";
}

inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// The stems of the outputs' files: names like "layer/out:0" become files of the folder itself, long ones are cut to what
// a file system takes, and no two are the same.
inline std::vector<std::string> file_names(const aitc_model& model) {
  constexpr size_t longest = 200;
  std::vector<std::string> names;
  for (int i = 0; i < model.output_count; ++i) {
    std::string name = model.outputs[i].name;
    for (char& c : name)
      if (c == '/' || c == '\\' || c == ':') c = '_';
    size_t end = name.size();
    if (end > longest)
      for (end = longest; end > 0 && (name[end] & 0xC0) == 0x80;) --end;  // between characters of UTF-8
    name.resize(end);
    while (std::find(names.begin(), names.end(), name) != names.end()) name += "_";
    names.push_back(name);
  }
  return names;
}

class Command {
 public:
  Command(const aitc_model& model, const char* const* nodes, const Options& options) : model_(model), nodes_(nodes), options_(options) {}
  ~Command() {
    if (instance_) model_.destroy(instance_);
  }

  void run() {
    make_inputs();
    check(model_,
          model_.create(options_.device, options_.weights.empty() ? nullptr : options_.weights.c_str(), &instance_));
    const bool sized = make_outputs();
    const std::vector<aitc_tensor> in = tensors(inputs_);
    sized ? run_sized(in) : check(model_, model_.run(instance_, in.data(), in.size(), tensors(outputs_).data(), outputs_.size(), nullptr));
    if (!options_.output_dir.empty()) {
      mkdir(options_.output_dir.c_str(), 0777);
      const std::vector<std::string> names = file_names(model_);
      for (size_t i = 0; i < outputs_.size(); ++i)
        write_npy(options_.output_dir + "/" + names[i] + ".npy", outputs_[i],
                  dtype_info(outputs_[i].dtype).bytes);
    }
    if (options_.bench || options_.profile) {
      seconds_.resize(size_t(options_.iterations));
      check(model_, model_.bench(instance_, in.data(), in.size(), options_.warmup, options_.iterations, seconds_.data(),
                                 nullptr));
      std::sort(seconds_.begin(), seconds_.end());
    }
    if (options_.profile) profile(in);
    options_.json ? print_json() : print_text();
  }

 private:
  // Sizes of symbols, from --dim or from files where there are some, else their hints.
  void make_inputs() {
    std::vector<int64_t> dims;
    inputs_.resize(size_t(model_.input_count));
    for (int i = 0; i < model_.input_count; ++i) {
      const auto file = options_.inputs.find(model_.inputs[i].name);
      if (file != options_.inputs.end())
        inputs_[size_t(i)] = read_npy(file->second, model_.inputs[i].dtype, dtype_info(model_.inputs[i].dtype).bytes);
    }
    for (int s = 0; s < model_.symbol_count; ++s) {
      const aitc_symbol& symbol = model_.symbols[s];
      const auto given = options_.dims.find(symbol.name);
      const std::vector<int64_t>& shape = inputs_[size_t(symbol.input)].shape;
      const bool from_file =
          options_.inputs.count(model_.inputs[symbol.input].name) != 0 && size_t(symbol.axis) < shape.size();
      dims.push_back(from_file                      ? shape[size_t(symbol.axis)]
                     : given != options_.dims.end() ? given->second
                                                    : symbol.hint);
    }
    Random random(options_.seed);
    for (int i = 0; i < model_.input_count; ++i) {
      const aitc_port& port = model_.inputs[i];
      if (options_.inputs.count(port.name)) continue;
      std::vector<int64_t> shape;
      for (int axis = 0; axis < port.rank; ++axis) shape.push_back(axis_size(port.shape[axis], dims));
      inputs_[size_t(i)] = random_array(port, shape, dtype_info(port.dtype).bytes, random);
    }
  }

  // Axes of made-up inputs: fixed, or an expression over symbols.
  int64_t axis_size(const aitc_axis& axis, const std::vector<int64_t>& dims) const {
    const int64_t size =
        axis.text == nullptr ? axis.size : AxisExpression::evaluate(axis.text, model_, dims.data());
    if (size < 0)
      throw UsageError(format("an axis of size \"%s\" would be %lld: other sizes can be given with --dim", axis.text,
                              static_cast<long long>(size)));
    return size;
  }

  // Room for the outputs. Returns whether only the run decides some of their sizes.
  bool make_outputs() {
    bool late = false;
    const std::vector<aitc_tensor> in = tensors(inputs_);
    std::vector<int64_t> sizes(size_t(total_rank(model_.outputs, model_.output_count)) + 1);
    check(model_, model_.output_shapes(in.data(), in.size(), sizes.data()));
    const int64_t* size = sizes.data();
    for (int i = 0; i < model_.output_count; ++i) {
      const aitc_port& port = model_.outputs[i];
      Array array;
      array.dtype = port.dtype;
      array.shape.assign(size, size + port.rank);
      late = late || is_late(size, port.rank);
      for (int64_t& d : array.shape) d = max_of(d, 0);
      size += port.rank;
      array.data.resize(size_t(element_count(array.shape)) * size_t(dtype_info(port.dtype).bytes));
      outputs_.push_back(std::move(array));
    }
    return late;
  }

  void run_sized(const std::vector<aitc_tensor>& in) {
    std::vector<aitc_tensor> out = tensors(outputs_);
    for (aitc_tensor& tensor : out) tensor.data = nullptr;
    std::vector<int64_t> sizes(size_t(total_rank(model_.outputs, model_.output_count)) + 1);
    check(model_, model_.run_sized(instance_, in.data(), in.size(), out.data(), out.size(), sizes.data(), nullptr));
    const int64_t* size = sizes.data();
    for (size_t i = 0; i < out.size(); ++i) {
      Array& array = outputs_[i];
      array.shape.assign(size, size + model_.outputs[i].rank);
      size += model_.outputs[i].rank;
      const char* data = static_cast<const char*>(out[i].data);
      array.data.assign(data, data + element_count(array.shape) * dtype_info(array.dtype).bytes);
      model_.release(-1, out[i].data);
    }
  }

  void profile(const std::vector<aitc_tensor>& in) {
    const aitc_span* spans = nullptr;
    size_t count = 0;
    check(model_, model_.profile(instance_, in.data(), in.size(), options_.warmup, options_.iterations, nullptr, &spans,
                                 &count));
    const size_t runs = size_t(options_.iterations), launches = size_t(model_.launch_count);
    std::vector<std::vector<double>> each(launches, std::vector<double>(runs, 0.0));
    std::vector<std::pair<double, int>> ends(runs);
    for (size_t i = 0; i < count; ++i) {
      each[size_t(spans[i].launch)][size_t(spans[i].run)] += spans[i].end - spans[i].begin;
      ends[size_t(spans[i].run)] = {spans[i].end, spans[i].run};
    }
    std::sort(ends.begin(), ends.end());
    const int middle = ends[runs / 2].second;
    std::copy_if(spans, spans + count, std::back_inserter(timeline_), [&](const aitc_span& s) { return s.run == middle; });
    for (std::vector<double>& seconds : each) {
      std::sort(seconds.begin(), seconds.end());
      launches_.push_back(seconds[runs / 2]);
      least_.push_back(seconds[0]);
    }
  }

  static std::vector<aitc_tensor> tensors(std::vector<Array>& arrays) {
    std::vector<aitc_tensor> all;
    for (Array& array : arrays)
      all.push_back(
          {array.data.data(), array.shape.data(), int32_t(array.shape.size()), array.dtype, AITC_MEMORY_HOST});
    return all;
  }

  double percentile(double p) const {
    return seconds_[std::min(seconds_.size() - 1, size_t(p / 100 * double(seconds_.size())))] * 1e3;
  }
  double mean() const {
    double sum = 0;
    for (double s : seconds_) sum += s;
    return sum / double(seconds_.size()) * 1e3;
  }

  void print_text() const {
    printf("%s on %s\n", model_.name, model_.device_name(instance_));
    for (size_t i = 0; i < inputs_.size(); ++i)
      printf("  input  %s: %s%s%s\n", model_.inputs[i].name, dtype_info(inputs_[i].dtype).name,
             shape_text(inputs_[i].shape).c_str(), options_.inputs.count(model_.inputs[i].name) ? "" : " (made up)");
    for (size_t i = 0; i < outputs_.size(); ++i)
      printf("  output %s: %s%s\n", model_.outputs[i].name, dtype_info(outputs_[i].dtype).name,
             shape_text(outputs_[i].shape).c_str());
    if (seconds_.empty()) return;
    printf("latency of %zu runs, ms: p50 %.4f  p90 %.4f  p99 %.4f  mean %.4f  min %.4f  max %.4f\n", seconds_.size(),
           percentile(50), percentile(90), percentile(99), mean(), seconds_.front() * 1e3, seconds_.back() * 1e3);
    if (!options_.profile) return;
    for (size_t i : by_time()) printf("%10.2f us  %s  %s\n", launches_[i] * 1e6, model_.launches[i], nodes_[i]);
  }

  void print_json() const {
    std::string text = "{\"model\": " + json_string(model_.name) + ", \"api\": " + json_string(model_.api) +
                       ", \"device\": " + json_string(model_.device_name(instance_));
    const auto ports = [&](const char* key, const aitc_port* ports, const std::vector<Array>& arrays) {
      text += std::string(", \"") + key + "\": [";
      for (size_t i = 0; i < arrays.size(); ++i)
        text += std::string(i ? ", " : "") + "{\"name\": " + json_string(ports[i].name) + ", \"dtype\": \"" +
                dtype_info(arrays[i].dtype).name + "\", \"shape\": " + shape_text(arrays[i].shape) + "}";
      text += "]";
    };
    ports("inputs", model_.inputs, inputs_);
    ports("outputs", model_.outputs, outputs_);
    if (!seconds_.empty())
      text += format(
          ", \"iterations\": %zu, \"latency_ms\": {\"p50\": %.6f, \"p90\": %.6f, \"p99\": %.6f, \"mean\": %.6f, "
          "\"min\": %.6f, \"max\": %.6f}",
          seconds_.size(), percentile(50), percentile(90), percentile(99), mean(), seconds_.front() * 1e3,
          seconds_.back() * 1e3);
    if (options_.profile) {
      text += ", \"launches\": [";
      for (size_t i = 0; i < launches_.size(); ++i)
        text += format("%s{\"name\": %s, \"us\": %.3f, \"min_us\": %.3f, \"nodes\": %s}", i ? ", " : "",
                       json_string(model_.launches[i]).c_str(), launches_[i] * 1e6, least_[i] * 1e6, json_string(nodes_[i]).c_str());
      text += "], \"timeline\": [";  // of the run that took the median time
      for (size_t i = 0; i < timeline_.size(); ++i)
        text += format("%s{\"launch\": %d, \"begin_us\": %.3f, \"end_us\": %.3f}", i ? ", " : "", timeline_[i].launch,
                       timeline_[i].begin * 1e6, timeline_[i].end * 1e6);
      text += "]";
    }
    printf("%s}\n", text.c_str());
  }

  std::vector<size_t> by_time() const {
    std::vector<size_t> order(launches_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return launches_[a] > launches_[b]; });
    return order;
  }

  const aitc_model& model_;
  const char* const* const nodes_;  // what each launch stands for
  const Options& options_;
  aitc_instance* instance_ = nullptr;
  std::vector<Array> inputs_, outputs_;
  std::vector<double> seconds_, launches_, least_;  // launches: their medians and minima
  std::vector<aitc_span> timeline_;                 // of one run
};

inline int exit_code(aitc_status status) {
  switch (status) {
    case AITC_OK:            return exit_ok;
    case AITC_BAD_ARGUMENT:
    case AITC_BAD_INPUT:     return exit_usage;
    case AITC_FILE_ERROR:    return exit_io;
    case AITC_NO_DEVICE:
    case AITC_OUT_OF_MEMORY:
    case AITC_DEVICE_ERROR:  return exit_runtime;
    default:                 return exit_internal;
  }
}

// The whole program; `nodes`: of each launch the ONNX nodes that it stands for.
inline int command(const aitc_model* model, const char* const* nodes, int argc, char** argv) {
  try {
    if (model->abi_version != AITC_ABI_VERSION)
      throw Error(AITC_INTERNAL,
                  format("the library has ABI version %u, this program %d", model->abi_version, AITC_ABI_VERSION));
    const Options options = parse_options(*model, argc, argv);
    Command(*model, nodes, options).run();
    if (fflush(stdout) != 0) throw Error(AITC_FILE_ERROR, "cannot write to standard output");
    return exit_ok;
  } catch (const Error& e) {
    fprintf(stderr, "error: %s\n", e.text.c_str());
    return exit_code(e.status);
  } catch (const std::bad_alloc&) {
    fprintf(stderr, "error: out of host memory\n");
    return exit_runtime;
  } catch (const std::exception& e) {
    fprintf(stderr, "error: %s\n", e.what());
    return exit_internal;
  }
}

}  // namespace aitc::host
