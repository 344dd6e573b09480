// Writes click logs shaped like Criteo's, to measure the reading of training data.
//
//   click_logs --format=tsv --samples=1000000 --files=4 --out=DIR
//
// Leaves DIR/part-0000.tsv and so on. Every sample has a label, 13 counts, some of them empty, and
// 26 categories. tsv: Criteo's own format, without a header line; csv: with a header line and
// commas; libsvm: 39 pairs; 13 have the counts as values. The logarithm of a category is
// uniform, and the label depends on some categories. The same flags write the same bytes.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, format, "tsv", "tsv, csv or libsvm");
ABSL_FLAG(uint64_t, samples, 1000000, "samples of all files together");
ABSL_FLAG(uint32_t, files, 1, "files");
ABSL_FLAG(uint64_t, categories, 1000000, "categories of a field");
ABSL_FLAG(uint64_t, seed, 7, "the seed of the samples");
ABSL_FLAG(bool, sorted, false, "samples with label 0 come first: the worst case for a shuffle");
ABSL_FLAG(std::string, out, "", "an existing folder for the files");

namespace pawl {
namespace {

constexpr int kCounts = 13;
constexpr int kCategories = 26;

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void AppendNumber(std::string* line, uint64_t number, int base = 10) {
  char text[20];
  const auto end = std::to_chars(text, text + sizeof(text), number, base);
  line->append(text, end.ptr);
}

// A number below about `bound`, whose logarithm is uniform.
uint64_t LogUniform(uint64_t random, uint64_t bound) {
  int bits = 0;
  while (bits < 63 && bound >> bits > 1) ++bits;
  const uint64_t magnitude = (random >> 32) % static_cast<uint64_t>(bits + 1);
  return (random & 0xffffffff) % ((uint64_t{1} << magnitude) + 1);
}

void AppendSample(uint64_t sample, bool libsvm, char separator, int label, std::string* line) {
  const uint64_t seed = Mix(absl::GetFlag(FLAGS_seed) * 1000003 + sample);
  const uint64_t bound = absl::GetFlag(FLAGS_categories);
  uint64_t categories[kCategories];
  int score = 0;
  for (int i = 0; i < kCategories; ++i) {
    categories[i] = LogUniform(Mix(seed + 100 + static_cast<uint64_t>(i)), bound);
    if (i < 8) score += (Mix(categories[i] * 31 + static_cast<uint64_t>(i)) & 1) != 0 ? 1 : -1;
  }
  if (label < 0) {
    const int noise = static_cast<int>(Mix(seed + 1) % 13) - 6;
    label = score + noise > 2 ? 1 : 0;
  }
  AppendNumber(line, static_cast<uint64_t>(label));
  for (int i = 0; i < kCounts; ++i) {
    const uint64_t random = Mix(seed + 200 + static_cast<uint64_t>(i));
    const uint64_t count = LogUniform(random, 1 << 16);
    if (libsvm) {
      line->push_back(' ');
      AppendNumber(line, static_cast<uint64_t>(i) + 1);
      line->push_back(':');
      AppendNumber(line, count % 1000);
      line->push_back('.');
      AppendNumber(line, random % 90 + 10);
    } else {
      line->push_back(separator);
      if (random % 9 != 0) AppendNumber(line, count);
    }
  }
  for (int i = 0; i < kCategories; ++i) {
    if (libsvm) {
      line->push_back(' ');
      AppendNumber(line, 1000 + categories[i] * kCategories + static_cast<uint64_t>(i));
      line->append(":1");
    } else {
      line->push_back(separator);
      // Eight hexadecimal digits, as in Criteo's files.
      const uint64_t name = Mix(categories[i] * 64 + static_cast<uint64_t>(i)) >> 32;
      if (categories[i] % 50 != 49) AppendNumber(line, name | uint64_t{0x10000000}, 16);
    }
  }
  line->push_back('\n');
}

int Main() {
  const std::string format = absl::GetFlag(FLAGS_format);
  const uint64_t samples = absl::GetFlag(FLAGS_samples);
  const uint32_t files = absl::GetFlag(FLAGS_files);
  if ((format != "tsv" && format != "csv" && format != "libsvm") || files == 0) {
    std::fputs("wrong --format or --files\n", stderr);
    return 2;
  }
  uint64_t sample = 0;
  for (uint32_t file = 0; file < files; ++file) {
    std::ofstream out(absl::GetFlag(FLAGS_out) + absl::StrFormat("/part-%04d.", file) + format,
                      std::ios::binary);
    std::string text;
    if (format == "csv") {
      text = "label";
      for (int i = 1; i <= kCounts; ++i) absl::StrAppend(&text, ",I", i);
      for (int i = 1; i <= kCategories; ++i) absl::StrAppend(&text, ",C", i);
      text += '\n';
    }
    for (const uint64_t end = samples * (file + 1) / files; sample < end; ++sample) {
      const int label = !absl::GetFlag(FLAGS_sorted) ? -1 : sample < samples / 2 ? 0 : 1;
      AppendSample(sample, format == "libsvm", format == "tsv" ? '\t' : ',', label, &text);
      if (text.size() < (1 << 20)) continue;
      out << text;
      text.clear();
    }
    out << text;
    out.close();
    if (!out) {
      std::fputs("cannot write\n", stderr);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("writes click logs shaped like Criteo's");
  absl::ParseCommandLine(argc, argv);
  return pawl::Main();
}
