// write_page: writes one page of the reference to stdout.
//
//   write_page job|errors|metrics DESCRIPTORS
//
// DESCRIPTORS: a file from protoc --descriptor_set_out --include_imports --include_source_info.
// deploy/reference/generate makes all pages with it.
//
// Exit codes: 0: written; 1: cannot be written; 2: wrong usage.
#include <fstream>
#include <iostream>
#include <string>

#include "deploy/reference/errors_page.h"
#include "deploy/reference/job_page.h"
#include "deploy/reference/metrics_page.h"
#include "google/protobuf/descriptor.pb.h"

namespace {

bool ReadDescriptors(const char* path, google::protobuf::DescriptorPool& pool) {
  std::ifstream file(path, std::ios::binary);
  google::protobuf::FileDescriptorSet set;
  if (!file || !set.ParseFromIstream(&file)) return false;
  for (const google::protobuf::FileDescriptorProto& one : set.file()) {
    if (pool.BuildFile(one) == nullptr) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string page = argc == 3 ? argv[1] : "";
  google::protobuf::DescriptorPool pool;
  if (page.empty() || !ReadDescriptors(argv[2], pool)) {
    std::cerr << "Usage: write_page job|errors|metrics DESCRIPTORS\n";
    return 2;
  }
  std::string source, text;
  if (page == "job") {
    source = "proto/job.proto and client_lib/job/job_file.cc";
    text = pawl::JobPage(pool);
  } else if (page == "errors") {
    source = "the comments in proto/ and client_lib/rpc/retry.cc";
    text = pawl::ErrorsPage(pool, {"proto/parameter.proto", "proto/scheduler.proto",
                                   "proto/replication.proto", "proto/server_control.proto"});
  } else if (page == "metrics") {
    source = "scheduler/status/metrics.cc";
    text = pawl::MetricsPage();
  } else {
    std::cerr << "write_page: there is no page '" << page << "'\n";
    return 2;
  }
  std::cout << "Made by deploy/reference/generate from " << source << ". Change\n"
            << "those, not this page.\n\n"
            << text;
  return std::cout.flush() ? 0 : 1;
}
