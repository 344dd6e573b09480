// The smallest program on the C interface: fits y = 2x by gradient descent; its one weight is on
// the servers. SCHEDULER is the address of a job without data and model.
//
//   bazel build //client_lib/c:example
//   bazel-bin/client_lib/c/example 127.0.0.1:7000
#include <stdio.h>
#include <stdlib.h>

#include "client_lib/c/pawl.h"

// Waits for the operation that `code` says has started, and releases it. Exits with the error's
// text if it fails.
static void finish(int code, pawl_call* call) {
  if (code == PAWL_OK) code = pawl_wait(call, -1);
  if (code != PAWL_OK) {
    fprintf(stderr, "error %d: %s\n", code, pawl_error());
    exit(1);
  }
  pawl_release(call);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: example SCHEDULER_ADDRESS\n");
    return 1;
  }
  pawl_options options = {.size = sizeof(options), .scheduler = argv[1]};
  pawl_client* client = NULL;
  pawl_call* call = NULL;
  int code = pawl_connect(&options, &client, &call);
  finish(code, call);

  // A table whose rows hold one number each. The first table of a job has the number 1; a program
  // that does not know which tables there are reads `id` in pawl_result(call).
  code = pawl_create_table(client,
                           "{\"name\": \"example/weights\", \"kind\": \"SPARSE\", \"row_width\": 1,"
                           " \"optimizer\": {\"sgd\": {\"learning_rate\": 0.1}}}",
                           0, &call);
  finish(code, call);

  const uint64_t key = 42;
  float weight = 0, gradient = 0;
  const pawl_item pull = {
      .table = 1, .keys = &key, .key_count = 1, .values = &weight, .value_count = 1};
  const pawl_item push = {
      .table = 1, .keys = &key, .key_count = 1, .values = &gradient, .value_count = 1};
  pawl_session* const session = pawl_free_running(client);
  for (int step = 0; step < 60; ++step) {
    code = pawl_pull(session, &pull, 1, -1, 0, &call);
    finish(code, call);
    const float x = (float)(step % 3), y = 2 * x;
    gradient = (weight * x - y) * x;
    code = pawl_push(session, &push, 1, 0, &call);
    finish(code, call);
  }
  printf("the weight is %.4f\n", weight);
  pawl_disconnect(client);
  return 0;
}
