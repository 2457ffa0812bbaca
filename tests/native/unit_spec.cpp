// Tests of what a call relies on: descriptions, parameters, the dispatch table, bundles.
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "check.h"
#include "core/bundle.h"
#include "core/cpu_level.h"
#include "core/dispatch.h"
#include "core/launch.h"
#include "core/params.h"
#include "core/sha256.h"

using namespace tileops;

static std::string corpus(const char* name) {
  std::ifstream file(std::string(TILEOPS_CORPUS) + "/" + name, std::ios::binary);
  CHECK(static_cast<bool>(file));
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

static EntrySpec::ImageMap images() {
  EntrySpec::ImageMap map;
  for (const char* name : {"kernel_lib.so", "launch0.cubin"})
    map[name] = ImageSource{name, "x", ""};
  return map;
}

// Replaces the first `from` of a good description.
static std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  CHECK(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

static void read_all(const std::string& text) {
  const BundledOp op = BundledOp::from_text(text);
  const OpSpec spec = OpSpec::from_json(op.op());
  for (const BundledVariant& variant : op.variants) {
    const VariantSpec rules = VariantSpec::from_json(*variant.description, spec);
    for (const BundledEntry& entry : variant.entries)
      EntrySpec::from_json(*entry.description, spec, rules, images(), 0);
  }
}

TEST(op_descriptions) {
  const std::string good = corpus("op_cpu.json");
  CHECK(check::error_of([&] { read_all(good); }).empty());
  CHECK(check::error_of([&] { read_all(corpus("op_cuda.json")); }).empty());
  const char* const bad[][3] = {
      {"\"format\": 1", "\"format\": 3", "expected format 1 or 2, got 3"},
      {"\"format\": 1", "\"format\": 2", "'definition' is missing"},
      {"\"name\": \"a\"", "\"named\": \"a\", \"name\": \"a\"", "args: unknown member 'named'"},
      {"\"strides\": null", "\"strides\": null, \"lanes\": 1", "tensors: unknown member 'lanes'"},
      {"\"static\": []", "\"static\": [], \"lanes\": 1", "variant: unknown member 'lanes'"},
      {"\"kind\": \"tensor\"", "\"kind\": \"tensors\"", "unknown kind"},
      {"\"role\": \"tensor\"", "\"role\": \"scalar\"", "kind and role do not fit"},
      {"\"alloc:0\"", "\"alloc:\"", "unknown return"},
      {"\"alloc:0\"", "\"alloc:99999999999999999999\"", "unknown return"},
      {"\"alloc:0\"", "\"alloc:0x\"", "unknown return"},
      {"\"alloc:0\"", "\"alloc:0\", \"alloc:0\"", "returned twice"},
      {"\"alloc:0\"", "\"alloc:1\"", "return without an output"},
      {"{\"bind\": 0}", "{\"bind\": 1}", "bind"},
      {"{\"bind\": 0}", "{\"eq\": 77}", "eq"},
      {"{\"bind\": 0}", "{\"solve\": [0, 0, 0]}", "solve"},
      {"\"grid\": 4", "\"grid\": 5", "launches.grid"},
      {"\"image\": \"kernel_lib.so\"", "\"image\": \"other.so\"", "no image 'other.so'"},
      {"\"device\": \"cpu\"", "\"device\": \"tpu\"", "unknown device"},
      {"\"device\": \"cpu\"", "\"device\": \"cuda\"", "needs a capability"},
      {"{\"output\": 0}", "{\"output\": 1}", "tensor_order"},
      {"{\"kind\": \"tensor\", \"index\": 2}", "{\"kind\": \"tensor\", \"index\": 3}",
       "params.index"},
  };
  for (const auto& row : bad) CHECK_ERROR(row[2], read_all(changed(good, row[0], row[1])));
}

TEST(a_variant_has_at_most_as_many_scalars_as_arguments) {
  const std::string good = corpus("op_cuda.json");
  const std::string scalar = "{\"arg\": 1, \"name\": \"n\", \"dtype\": \"int32\"}";
  std::string many = scalar;
  for (int i = 0; i < 100; ++i) many += ", " + scalar;
  CHECK_ERROR("scalars", read_all(changed(good, scalar, many)));
}

TEST(static_values_are_told_apart) {
  const StaticValue values[] = {std::monostate{},
                                int64_t{0},
                                int64_t{1},
                                0.0,
                                -0.0,
                                1.0,
                                false,
                                true,
                                std::string(),
                                std::string("0"),
                                std::string(9, 'a'),
                                std::vector<int64_t>{},
                                std::vector<int64_t>{0},
                                std::vector<int64_t>{1, 0}};
  std::vector<std::vector<uint64_t>> keys;
  for (const StaticValue& value : values) {
    std::vector<uint64_t> key;
    append_key_words(key, value);
    for (const auto& other : keys) CHECK(key != other);
    keys.push_back(key);
  }
  std::vector<uint64_t> one, two;
  append_key_words(one, std::nan("1"));
  append_key_words(two, std::nan("2"));
  CHECK(one == two);
}

TEST(float_formats_round_to_nearest_even) {
  // Every finite half and bfloat16 is itself; halfway points go to the even neighbour.
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10), fraction = static_cast<int>(bits & 1023);
    const double value =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    CHECK(half_bits(value) == bits);
    CHECK(half_bits(-value) == (bits | 0x8000));
  }
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const uint32_t wide = bits << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    CHECK(bfloat16_bits(static_cast<double>(value)) == bits);
  }
  CHECK(half_bits(1 + 0x1p-11) == half_bits(1));
  CHECK(half_bits(1 + 0x3p-11) == half_bits(1 + 0x1p-9));
  CHECK(half_bits(65519.9) == half_bits(65504));
  CHECK(half_bits(65520) == half_bits(INFINITY));
  CHECK(half_bits(0x1p-26) == 0);
  CHECK(std::isnan(round_to_type(NAN, ScalarType::kF16)));
  CHECK(round_to_type(1e300, ScalarType::kF64) == 1e300);
}

TEST(parameters_fit_their_types) {
  LaunchSpec launch;
  ParamRule rule{};
  rule.kind = ParamRule::kSlot;
  rule.type = ScalarType::kI32;
  launch.params.push_back(rule);
  int64_t slots[1] = {INT32_MIN};
  CallFrame frame;
  frame.op = "f";
  frame.slots = slots;
  TileopsValue out[1];
  pack_cpu(launch, frame, out);
  CHECK(out[0].i == INT32_MIN);
  slots[0] = int64_t{INT32_MAX} + 1;
  CHECK_ERROR("f: the value 2147483648 does not fit", pack_cpu(launch, frame, out));
  auto cuda = std::make_unique<CudaParams>();
  CHECK_ERROR("does not fit", pack_cuda(launch, frame, *cuda));
}

TEST(workspaces_are_aligned_and_bounded) {
  EntrySpec entry{};
  entry.workspaces = {0, 1};
  int64_t slots[2] = {1, 300}, offsets[2], scratch = 0;
  CallFrame frame;
  frame.op = "f";
  frame.slots = slots;
  CHECK(plan_workspaces(entry, frame, offsets, &scratch) == 768);
  CHECK(offsets[0] == 0 && offsets[1] == 256 && scratch == -1);
  slots[1] = INT64_MAX - 255;
  CHECK_ERROR("impossible size", plan_workspaces(entry, frame, offsets, &scratch));
  slots[1] = -1;
  CHECK_ERROR("impossible size", plan_workspaces(entry, frame, offsets, &scratch));
}

TEST(the_dispatch_table_finds_what_was_put_in) {
  DispatchTable<int> table;
  std::atomic<bool> wrong{false};
  std::atomic<uint64_t> last{0};
  std::thread reader([&] {
    while (last.load() < 4096) {
      for (uint64_t i = 0; i < last.load(); i += 37) {
        const uint64_t key[2] = {i, i * 7};
        const int* found = table.find(key, 2);
        if (found == nullptr || *found != static_cast<int>(i)) wrong = true;
      }
    }
  });
  for (uint64_t i = 0; i < 4096; ++i) {
    table.insert({i, i * 7}, std::make_unique<int>(static_cast<int>(i)));
    last = i + 1;
  }
  reader.join();
  CHECK(!wrong);
  CHECK(table.size() == 4096);
  const uint64_t absent[2] = {1, 8};
  CHECK(table.find(absent, 2) == nullptr);
  CHECK(table.find(absent, 1) == nullptr);
  CHECK(*table.insert({5, 35}, std::make_unique<int>(-1)) == 5);
}

static void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

static std::string fact(const std::string& text) {
  return "{\"size\": " + std::to_string(text.size()) + ", \"sha256\": \"" + sha256_hex(text) +
         "\"}";
}

TEST(bundles_on_disk) {
  char name[] = "/tmp/tileops_bundle_XXXXXX";
  CHECK(mkdtemp(name) != nullptr);
  const std::filesystem::path root = name;
  const std::string op = corpus("op_cpu.json");
  write(root / "ops/f/op.json", op);
  write(root / "bundle.json", "{\"format\": 1, \"ops\": {\"f\": " + fact(op) + "}}");
  const Bundle bundle = Bundle::open(root.string(), Trust(false));
  CHECK(bundle.ops().size() == 1);
  BundledEntry entry = bundle.ops()[0].variants.at(0).entries.at(0);
  const std::string manifest = "{\"format\": 1, \"files\": {\"kernel_lib.so\": " + fact("code") +
                               ", \"ir/x.txt\": " + fact("") + "}}";
  write(root / "programs" / entry.program / "manifest.json", manifest);
  CHECK_ERROR("manifest.json: expected", bundle.images(entry));
  entry.manifest = {manifest.size(), sha256_hex(manifest)};
  const EntrySpec::ImageMap found = bundle.images(entry);
  CHECK(found.size() == 1);
  const ImageSource& source = found.at("kernel_lib.so");
  CHECK_ERROR("No such file", read_verified(source.path, source.expected));
  write(source.path, "cade");
  CHECK_ERROR("expected the SHA-256", read_verified(source.path, source.expected));
  CHECK_ERROR("damaged", CpuImage(source).find("f"));
  write(source.path, "code");
  CHECK(read_verified(source.path, source.expected) == "code");
  // Whole, but no library.
  CHECK_ERROR("kernel library", CpuImage(source).find("f"));
  CHECK_ERROR("expected a plain file", read_file(root.string(), 10));
  CHECK(mkfifo((root / "fifo").c_str(), 0600) == 0);
  CHECK_ERROR("expected a plain file", read_file((root / "fifo").string(), 10));
  write(root / "ops/f/op.json", op + " ");
  CHECK_ERROR("op.json: expected at most", Bundle::open(root.string(), Trust(false)));
  std::filesystem::remove_all(root);
}

TEST(what_others_can_write_is_refused) {
  char name[] = "/tmp/tileops_bundle_XXXXXX";
  CHECK(mkdtemp(name) != nullptr);
  const std::filesystem::path root = name;
  const std::string op = corpus("op_cpu.json");
  write(root / "ops/f/op.json", op);
  write(root / "bundle.json", "{\"format\": 1, \"ops\": {\"f\": " + fact(op) + "}}");
  const auto open = [&](bool shared) { return Bundle::open(root.string(), Trust(shared)); };
  CHECK(open(false).ops().size() == 1);
  for (const char* part : {"", "bundle.json", "ops", "ops/f", "ops/f/op.json"}) {
    const std::string path = (root / part).string();
    struct stat status = {};
    CHECK(stat(path.c_str(), &status) == 0);
    CHECK(chmod(path.c_str(), status.st_mode | S_IWOTH) == 0);
    CHECK_ERROR("can be written by every user", open(false));
    CHECK(open(true).ops().size() == 1);
    CHECK(chmod(path.c_str(), status.st_mode) == 0);
  }
  CHECK(open(false).ops().size() == 1);
  std::filesystem::remove_all(root);
}

TEST(definitions) {
  const std::string good = corpus("op_cuda.json");
  CHECK(BundledOp::from_text(good).definition.size() == 64);
  CHECK(BundledOp::from_text(good).variants.at(0).digest.size() == 64);
  CHECK(BundledOp::from_text(good).difference({}) == "source");
  CHECK(BundledOp::from_text(good).difference(BundledOp::from_text(good).parts) == "definition");
  const char* const bad[][3] = {
      {"\"definition\": \"e", "\"definition\": \"E", "definition: expected 64 hexadecimal digits"},
      {"\"source\": \"b", "\"source\": \"", "parts: expected 64 hexadecimal digits"},
      {"\"digest\": \"b", "\"digest\": \"g", "variants.digest: expected 64 hexadecimal digits"},
      {"\"parts\"", "\"more\"", "op.json: unknown member 'more'"},
  };
  for (const auto& row : bad)
    CHECK_ERROR(row[2], BundledOp::from_text(changed(good, row[0], row[1])));
}

TEST(errors_of_a_bundle_name_the_file) {
  char name[] = "/tmp/tileops_bundle_XXXXXX";
  CHECK(mkdtemp(name) != nullptr);
  const std::filesystem::path root = name;
  const std::string index = (root / "bundle.json").string() + ": the bundle's index is damaged: ";
  const char* rows[][2] = {
      {"", "not valid JSON at byte 0: expected a value"},
      {"{\"format\": 1, \"ops\": {", "not valid JSON at byte 22: expected a key"},
      {"[]", "format: expected an object around it, got array"},
      {"{\"format\": \"1\"}", "format: expected integer, got string"},
      {"{\"format\": 2}", "expected format 1, got 2"},
      {"{\"format\": 1}", "'ops' is missing"},
      {"{\"format\": 1, \"ops\": []}", "ops: expected an object"},
      {"{\"format\": 1, \"ops\": {\"f\": {}}}", "'size' is missing"},
      {"\xff", "not valid JSON at byte 0"},
  };
  for (const auto& row : rows) {
    write(root / "bundle.json", row[0]);
    CHECK_ERROR(index + row[1], Bundle::open(root.string(), Trust(false)));
  }
  // What its writer wrote, and no description of an op.
  write(root / "ops/f/op.json", "{}");
  write(root / "bundle.json", "{\"format\": 1, \"ops\": {\"f\": " + fact("{}") + "}}");
  CHECK_ERROR((root / "ops/f/op.json").string() + ": 'format' is missing",
              Bundle::open(root.string(), Trust(false)));
  std::filesystem::remove_all(root);
}

TEST(bundles_lead_nowhere_else) {
  for (const char* bad : {"..", ".", "", "a/b", ".hidden"}) {
    const std::string text =
        std::string(R"({"format": 1, "ops": {")") + bad + "\": " + fact("") + "}}";
    CHECK_ERROR("is not the name of a file", BundleIndex::from_json(json::parse(text)));
  }
  CHECK_ERROR("is not the name of a file",
              BundledOp::from_text(
                  changed(corpus("op_cpu.json"), "\"program\": \"", "\"program\": \"../")));
}

TEST(cpu_targets) {
  CHECK(cpu_target_rank("cpu:x86-64-v9") == -1);
  CHECK(cpu_target_rank("cuda:sm_90") == -1);
  CHECK(cpu_target_rank("") == -1);
#if defined(__x86_64__)
  CHECK(cpu_target_rank("cpu:aarch64") == -1);
  CHECK(cpu_target_rank("cpu:x86-64-v1") == -1);
  const int v3 = cpu_target_rank("cpu:x86-64-v3"), v4 = cpu_target_rank("cpu:x86-64-v4");
  CHECK(v4 == -1 || v3 == 3);
#endif
}

int main() {
  for (const check::Test& test : check::tests()) {
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    test.body();
  }
  std::printf("%zu tests passed\n", check::tests().size());
  return 0;
}
