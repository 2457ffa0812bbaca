// The reader of entry descriptions: launches, their parameters and their images.
#include "core/error.h"
#include "core/params.h"
#include "core/spec.h"

namespace tileops {

void read_outputs(const json::Value& value, const HostProgram& host, std::vector<OutputRule>& out);
void check_inputs(const HostProgram& host, const VariantSpec& variant);
double read_float(const json::Value& value, const char* where);

namespace {

// Bytes of an element of a CUtensorMapDataType, in that enumeration's order (cuda.h); 0 is refused.
constexpr uint32_t kMapElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr int kMapTypes = sizeof(kMapElementBytes) / sizeof(kMapElementBytes[0]);

struct Images {
  const EntrySpec::ImageMap& sources;
  std::map<std::string, std::shared_ptr<CudaImage>> cuda;
  std::map<std::string, std::shared_ptr<CpuImage>> cpu;

  const ImageSource& source(const std::string& name) const {
    auto found = sources.find(name);
    if (found == sources.end()) raise(ErrorKind::kInternal, "no image '", name, "' was given");
    return found->second;
  }
  std::shared_ptr<CudaImage> cuda_image(const std::string& name) {
    auto& image = cuda[name];
    if (image == nullptr) image = std::make_shared<CudaImage>(source(name));
    return image;
  }
  std::shared_ptr<CpuImage> cpu_image(const std::string& name) {
    auto& image = cpu[name];
    if (image == nullptr) image = std::make_shared<CpuImage>(source(name));
    return image;
  }
};

std::vector<uint16_t> read_slots(const json::Value& value, const HostProgram& host,
                                 const char* where) {
  std::vector<uint16_t> slots;
  for (const json::Value& item : value.as_array(where))
    slots.push_back(host.checked_slot(item, where));
  return slots;
}

TensorMapRule read_map(const json::Value& value, const HostProgram& host) {
  TensorMapRule rule;
  for (const json::Value& item : value.at("box").as_array("box")) {
    rule.box.push_back(static_cast<uint32_t>(item.as_int_in(1, 256, "box")));
  }
  rule.shape = read_slots(value.at("shape"), host, "tensormap.shape");
  rule.strides = read_slots(value.at("strides"), host, "tensormap.strides");
  rule.swizzle = static_cast<int>(value.at("swizzle").as_int_in(0, 6, "swizzle"));
  rule.elem_type = static_cast<int>(value.at("elem_type").as_int_in(0, kMapTypes - 1, "elem_type"));
  rule.elem_bytes = kMapElementBytes[rule.elem_type];
  if (const json::Value* nans = value.find("nans")) rule.nans = nans->as_bool("tensormap.nans");
  const std::size_t rank = rule.box.size();
  if (rank < 1 || rank > 5 || rule.shape.size() != rank || rule.strides.size() != rank) {
    raise(ErrorKind::kInternal, "a tensor map has rank 1 to 5 and as many extents and strides");
  }
  return rule;
}

struct Counts {
  std::size_t tensors, workspaces, scalars;
};

uint16_t read_index(const json::Value& value, std::size_t count) {
  return static_cast<uint16_t>(
      value.at("index").as_int_in(0, static_cast<int64_t>(count) - 1, "params.index"));
}

ParamRule read_param(const json::Value& value, const HostProgram& host, const Counts& counts,
                     LaunchSpec& launch) {
  const std::string& kind = value.at("kind").as_string("params.kind");
  ParamRule rule{};
  if (kind == "tensor") {
    rule.kind = ParamRule::kTensor;
    rule.index = read_index(value, counts.tensors);
  } else if (kind == "workspace") {
    rule.kind = ParamRule::kWorkspace;
    rule.index = read_index(value, counts.workspaces);
  } else if (kind == "scalar") {
    rule.kind = ParamRule::kScalar;
    rule.index = read_index(value, counts.scalars);
    rule.type = scalar_type_of(value.at("type").as_string("params.type"), "params.type");
  } else if (kind == "slot") {
    rule.kind = ParamRule::kSlot;
    rule.index = host.checked_slot(value.at("slot"), "params.slot");
    rule.type = scalar_type_of(value.at("type").as_string("params.type"), "params.type");
  } else if (kind == "number") {
    rule.kind = ParamRule::kNumber;
    rule.type = scalar_type_of(value.at("type").as_string("params.type"), "params.type");
    if (!is_float_type(rule.type)) raise(ErrorKind::kInternal, "a number parameter is a float");
    rule.index = static_cast<uint16_t>(launch.numbers.size());
    launch.numbers.push_back(pack_float(read_float(value.at("value"), "params.value"), rule.type));
  } else if (kind == "null" || kind == "profile_scratch") {
    rule.kind = ParamRule::kNull;
  } else if (kind == "global_scratch") {
    rule.kind = ParamRule::kGlobalScratch;
  } else if (kind == "tensormap") {
    rule.kind = ParamRule::kTensorMap;
    TensorMapRule map = read_map(value, host);
    map.tensor = read_index(value, counts.tensors);
    rule.index = static_cast<uint16_t>(launch.maps.size());
    launch.maps.push_back(std::move(map));
  } else {
    raise(ErrorKind::kInternal, "unknown kind of parameter '", kind, "'");
  }
  return rule;
}

LaunchSpec read_launch(const json::Value& value, const EntrySpec& entry, const OpSpec& op,
                       const Counts& counts, Images& images) {
  LaunchSpec launch;
  launch.entry = value.at("entry").as_string("launches.entry");
  const json::Value* label = value.find("op_label");
  launch.label = label == nullptr ? op.name : label->as_string("launches.op_label");
  launch.grid = entry.host.checked_slot(value.at("grid"), "launches.grid");
  if (const json::Value* scratch = value.find("scratch_bytes")) {
    launch.scratch_bytes =
        static_cast<uint64_t>(scratch->as_int_in(0, int64_t{1} << 40, "launches.scratch_bytes"));
  }
  if (const json::Value* grain = value.find("grain"))
    launch.grain = grain->as_int_in(1, INT32_MAX, "launches.grain");
  for (const json::Value& item : value.at("params").as_array("launches.params")) {
    launch.params.push_back(read_param(item, entry.host, counts, launch));
  }
  const json::Value* title = value.find("title");
  launch.title = title == nullptr ? launch.entry : title->as_string("launches.title");
  if (const json::Value* names = value.find("names")) {
    for (const json::Value& name : names->as_array("launches.names"))
      launch.names.push_back(name.as_string("launches.names"));
  }
  if (launch.params.size() > kMaxParams || launch.maps.size() > kMaxMaps) {
    raise(ErrorKind::kInternal, "a launch has too many parameters");
  }
  const std::string& image = value.at("image").as_string("launches.image");
  if (entry.cuda) {
    if (const json::Value* cluster = value.find("cluster"))  // more are not on every device
      launch.cluster = static_cast<uint32_t>(cluster->as_int_in(1, 8, "launches.cluster"));
    if (const json::Value* more = value.find("more_grid"))
      launch.more_grid = read_slots(*more, entry.host, "launches.more_grid");
    if (const json::Value* more = value.find("more_threads")) {
      const auto& extents = more->as_array("launches.more_threads");
      if (extents.size() > 2) raise(ErrorKind::kInternal, "a block has at most three extents");
      for (std::size_t i = 0; i < extents.size(); ++i)
        launch.more_threads[i] =
            static_cast<uint32_t>(extents[i].as_int_in(1, 1024, "launches.more_threads"));
    }
    if (launch.more_grid.size() > 2)
      raise(ErrorKind::kInternal, "a grid has at most three extents");
    if (const json::Value* cooperative = value.find("cooperative"))
      launch.cooperative = cooperative->as_bool("launches.cooperative");
    if (const json::Value* dependent = value.find("dependent"))
      launch.dependent = dependent->as_bool("launches.dependent");
    launch.threads =
        static_cast<uint32_t>(value.at("threads").as_int_in(1, 1024, "launches.threads"));
    const int64_t shared = value.at("shared_bytes").as_int_in(0, 1 << 20, "launches.shared_bytes");
    launch.cuda = std::make_unique<CudaKernel>(images.cuda_image(image), launch.entry,
                                               static_cast<uint32_t>(shared), launch.label);
  } else {
    if (!launch.maps.empty()) raise(ErrorKind::kInternal, "a CPU launch takes no tensor map");
    launch.cpu = std::make_unique<CpuKernel>(images.cpu_image(image), launch.entry);
  }
  return launch;
}

void read_checks(const json::Value& value, EntrySpec& entry) {
  if (const json::Value* asserts = value.find("asserts")) {
    for (const json::Value& item : asserts->as_array("asserts")) {
      entry.asserts.push_back({entry.host.checked_slot(item.at("slot"), "asserts.slot"),
                               item.at("text").as_string("asserts.text")});
    }
  }
  if (const json::Value* status = value.find("status")) {
    entry.status = static_cast<int>(
        status->as_int_in(0, static_cast<int64_t>(entry.workspaces.size()) - 1, "status"));
  }
  const json::Value* reports = value.find("reports");
  if (reports == nullptr) return;
  for (const json::Value& item : reports->as_array("reports")) {
    CheckReport& report = entry.reports[item.at("number").as_int("reports.number")];
    report.kind = item.at("kind").as_string("reports.kind");
    report.what = item.at("what").as_string("reports.what");
    report.at = item.at("at").as_string("reports.at");
    report.bound = item.at("bound").as_int("reports.bound");
  }
}

TensorSource read_source(const json::Value& value, const OpSpec& op, std::size_t outputs) {
  if (const json::Value* arg = value.find("arg")) {
    const auto index = static_cast<uint16_t>(
        arg->as_int_in(0, static_cast<int64_t>(op.args.size()) - 1, "tensor_order.arg"));
    if (op.args[index].kind != ArgKind::kTensor)
      raise(ErrorKind::kInternal, "tensor_order.arg is not a tensor");
    return {false, index};
  }
  return {true, static_cast<uint16_t>(value.at("output").as_int_in(
                    0, static_cast<int64_t>(outputs) - 1, "tensor_order"))};
}

}  // namespace

std::string CheckReport::text(int64_t value) const {
  std::string said = what;
  if (kind == "index") {
    said += ": the index " + std::to_string(value) + " is outside 0.." + std::to_string(bound - 1);
  } else if (kind == "nan") {
    said += " " + std::to_string(value);
  }
  return at.empty() ? said : said + "\n  at " + at;
}

EntrySpec EntrySpec::from_json(const json::Value& value, const OpSpec& op,
                               const VariantSpec& variant, const ImageMap& sources,
                               int default_capability) {
  EntrySpec entry;
  const std::string& device = value.at("device").as_string("device");
  if (device != "cuda" && device != "cpu")
    raise(ErrorKind::kInternal, "unknown device '", device, "'");
  entry.cuda = device == "cuda";
  const json::Value* capability = value.find("capability");
  entry.capability = !entry.cuda ? 0
                     : capability == nullptr
                         ? default_capability
                         : static_cast<int>(capability->as_int_in(1, 999, "capability"));
  if (entry.cuda && entry.capability == 0)
    raise(ErrorKind::kInternal, "a cuda entry needs a capability");
  for (const json::Value& item : value.at("consts").as_array("consts"))
    entry.consts.push_back(item.as_int("consts"));
  if (entry.consts.size() != variant.key_sizes())
    raise(ErrorKind::kInternal, "wrong number of consts");
  entry.fast = value.at("fast").as_bool("fast");
  entry.index64 = value.at("index64").as_bool("index64");
  if (const json::Value* choice = value.find("choice")) {
    entry.choice = std::make_unique<ChoiceSpec>(ChoiceSpec::from_json(*choice));
    check_inputs(entry.choice->host, variant);
  }
  if (const json::Value* config = value.find("config")) entry.config = config->as_string("config");
  entry.host = HostProgram::from_json(value.find("host"));
  check_inputs(entry.host, variant);
  read_outputs(value, entry.host, entry.outputs);
  for (uint16_t number : op.returns) {
    if (number >= entry.outputs.size()) raise(ErrorKind::kInternal, "a return without an output");
  }
  if (const json::Value* workspaces = value.find("workspaces")) {
    for (const json::Value& item : workspaces->as_array("workspaces")) {
      entry.workspaces.push_back(entry.host.checked_slot(item.at("bytes"), "workspaces.bytes"));
    }
  }
  for (const json::Value& item : value.at("tensor_order").as_array("tensor_order")) {
    entry.tensors.push_back(read_source(item, op, entry.outputs.size()));
  }
  const Counts counts{entry.tensors.size(), entry.workspaces.size(), variant.scalars.size()};
  Images images{sources, {}, {}};
  for (const json::Value& item : value.at("launches").as_array("launches")) {
    entry.launches.push_back(read_launch(item, entry, op, counts, images));
  }
  read_checks(value, entry);
  entry.has_memory = !entry.workspaces.empty();
  for (const LaunchSpec& launch : entry.launches)
    entry.has_memory |= entry.cuda && launch.scratch_bytes > 0;
  return entry;
}

}  // namespace tileops
