// The smallest program that uses Pawl: fits y = 2x by gradient descent; its one weight is on the
// servers. SCHEDULER is the address of a job without data and model.
//
//   bazel build //client_lib/example
//   bazel-bin/client_lib/example/example 127.0.0.1:7000
#include <cstdio>
#include <vector>

#include "client_lib/base/status_macros.h"
#include "client_lib/client.h"

absl::Status Run(const char* scheduler) {
  pawl::ClientOptions options;
  options.scheduler = scheduler;
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<pawl::Client> client, pawl::Client::Connect(options));

  // A table whose rows hold one number each.
  pawl::TableSpec spec;
  spec.set_name("example/weights");
  spec.set_kind(pawl::SPARSE);
  spec.set_row_width(1);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1f);
  PAWL_ASSIGN_OR_RETURN(const pawl::Table table, client->CreateTable(spec).get());

  pawl::Session& session = client->free_running();
  const std::vector<uint64_t> keys = {42};
  std::vector<float> weight(1), gradient(1);
  for (int step = 0; step < 60; ++step) {
    PAWL_RETURN_IF_ERROR(
        session.Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(weight)}}).get());
    const float x = static_cast<float>(step % 3), y = 2 * x;
    gradient[0] = (weight[0] * x - y) * x;
    PAWL_RETURN_IF_ERROR(
        session.Push({{.table = table, .keys = keys, .gradients = gradient}}).get());
  }
  std::printf("the weight is %.4f\n", weight[0]);
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  const absl::Status status =
      argc == 2 ? Run(argv[1]) : absl::InvalidArgumentError("usage: example SCHEDULER_ADDRESS");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
