#include "deploy/pawlctl/commands/scale_commands.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/pawlctl/exit_code.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {
namespace {

// Has one event.
class FakeScheduler final : public Scheduler::Service {
 public:
  grpc::Status ListEvents(grpc::ServerContext*, const ListEventsRequest* request,
                          ListEventsResponse* response) override {
    response->set_job_state(RUNNING);
    if (request->after() == 0) {
      response->add_events()->set_number(1);
    } else if (!asked_again_) {
      asked_again_ = true;
      followed.set_value();
    }
    return grpc::Status::OK;
  }

  // Set once the event was read.
  std::promise<void> followed;

 private:
  bool asked_again_ = false;
};

TEST(PrintEventsTest, SchedulerThatIsGoneEndsFollowing) {
  FakeScheduler scheduler;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&scheduler);
  const std::unique_ptr<grpc::Server> listening = builder.BuildAndStart();
  ConnectionOptions options;
  options.scheduler = absl::StrCat("127.0.0.1:", port);
  auto security = Security::Open(SecurityOptions(), kAllRoles);
  ASSERT_TRUE(security.ok());
  options.security = *std::move(security);
  testing::internal::CaptureStderr();
  const std::future<void> gone = std::async(std::launch::async, [&] {
    scheduler.followed.get_future().wait();
    listening->Shutdown();
  });
  EXPECT_EQ(PrintEvents(options, /*follow=*/true, std::chrono::milliseconds(500)),
            kExitUnreachable);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("does not answer"), std::string::npos);
}

}  // namespace
}  // namespace pawl
