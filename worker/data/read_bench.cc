// Measures how fast one thread reads training data.
//
//   read_bench JOB_FILE
//
// Prints one line of JSON: the samples and bytes of data.train, the seconds that it takes to read
// them into memory, and samples per second.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace pawl {
namespace {

int Main(const char* job_file) {
  std::ifstream file(job_file);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Job job;
  if (!google::protobuf::TextFormat::ParseFromString(text, &job)) return 1;
  uint64_t bytes = 0, samples = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& path : job.data().train()) {
    bytes += std::filesystem::file_size(path);
    const auto dataset = Dataset::Load(job.data(), path);
    if (!dataset.ok()) {
      std::fprintf(stderr, "%s\n", dataset.status().ToString().c_str());
      return 1;
    }
    samples += (*dataset)->size();
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("{\"samples\": %llu, \"bytes\": %llu, \"seconds\": %.3f, \"samples_per_s\": %.0f}\n",
              static_cast<unsigned long long>(samples), static_cast<unsigned long long>(bytes),
              seconds, static_cast<double>(samples) / seconds);
  return 0;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return pawl::Main(argv[1]);
}
