// Scrapes an endpoint with TLS. //tests/integration:metrics_test does so without.
#include "scheduler/status/metrics_endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

constexpr time_t kTimeoutSeconds = 20;

int ConnectTo(int port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {kTimeoutSeconds, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return descriptor;
}

// The answer to `request` over TLS; empty if there is none. `tls_dir` empty: without a certificate.
std::string Ask(int port, const std::string& tls_dir,
                const std::string& request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  if (!tls_dir.empty()) {
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), (tls_dir + "/cert.pem").c_str()),
              1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), (tls_dir + "/key.pem").c_str(),
                                          SSL_FILETYPE_PEM),
              1);
  }
  // The server may close before this side writes. Other threads keep the signal.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  const int descriptor = ConnectTo(port);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_fd(ssl.get(), descriptor);
  std::string answer;
  if (SSL_connect(ssl.get()) == 1 &&
      SSL_write(ssl.get(), request.data(), static_cast<int>(request.size())) > 0) {
    char part[1024];
    for (int count = 0; (count = SSL_read(ssl.get(), part, sizeof(part))) > 0;)
      answer.append(part, static_cast<size_t>(count));
  }
  close(descriptor);
  return answer;
}

// Connections that begin a handshake and then send one byte after the other, until this ends.
class DrippingConnections {
 public:
  DrippingConnections(int port, int count) {
    // A handshake record of 16 KiB, and in it a ClientHello that fills it.
    constexpr absl::string_view kBegin("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11);
    for (int i = 0; i < count; ++i) {
      descriptors_.push_back(ConnectTo(port));
      EXPECT_EQ(send(descriptors_.back(), kBegin.data(), kBegin.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(kBegin.size()));
    }
    thread_ = std::thread([this, ended = end_.get_future()] {
      while (ended.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout) {
        for (const int descriptor : descriptors_)
          send(descriptor, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    });
  }
  ~DrippingConnections() {
    end_.set_value();
    thread_.join();
    for (const int descriptor : descriptors_) close(descriptor);
  }

 private:
  std::vector<int> descriptors_;
  std::promise<void> end_;
  std::thread thread_;
};

class MetricsEndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(MakeTestCertificates(folder_, "test").ok());
    auto endpoint = MetricsEndpoint::Listen(
        "127.0.0.1:0",
        [] {
          prometheus::MetricFamily family;
          family.name = "pawl_answer";
          family.type = prometheus::MetricType::Gauge;
          family.metric.resize(1);
          family.metric[0].gauge.value = 42;
          return std::vector<prometheus::MetricFamily>{family};
        },
        tls_dir("scheduler"));
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
  }
  std::string tls_dir(const std::string& role) const { return folder_ + "/" + role; }

  std::string folder_;
  std::unique_ptr<MetricsEndpoint> endpoint_;
};

TEST_F(MetricsEndpointTest, MemberOfTheJobGetsTheMetrics) {
  const std::string answer = Ask(endpoint_->port(), tls_dir("reader"));
  EXPECT_NE(answer.find("HTTP/1.1 200 OK"), std::string::npos) << answer;
  EXPECT_NE(answer.find("pawl_answer 42"), std::string::npos) << answer;
  EXPECT_NE(Ask(endpoint_->port(), tls_dir("reader"), "GET / HTTP/1.1\r\n\r\n").find("404"),
            std::string::npos);
}

TEST_F(MetricsEndpointTest, StrangersGetNothing) {
  EXPECT_EQ(Ask(endpoint_->port(), ""), "");
  // An authority of the same name with another key.
  const std::string other = folder_ + "-other";
  std::filesystem::remove_all(other);
  ASSERT_TRUE(MakeTestCertificates(other, "test").ok());
  EXPECT_EQ(Ask(endpoint_->port(), other + "/reader"), "");
}

TEST_F(MetricsEndpointTest, MemberOfAnotherJobGetsNothing) {
  // The same authority.
  ASSERT_TRUE(MakeTestCertificates(folder_, "other").ok());
  EXPECT_EQ(Ask(endpoint_->port(), tls_dir("reader")), "");
}

TEST_F(MetricsEndpointTest, PlaintextGetsNothing) {
  const int descriptor = ConnectTo(endpoint_->port());
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_GT(send(descriptor, request.data(), request.size(), MSG_NOSIGNAL), 0);
  char part[1024];
  const ssize_t count = recv(descriptor, part, sizeof(part), 0);
  EXPECT_EQ(std::string(part, static_cast<size_t>(std::max<ssize_t>(count, 0))).find("pawl_"),
            std::string::npos);
  close(descriptor);
}

TEST_F(MetricsEndpointTest, ClientsThatCloseEarlyDoNoHarm) {
  for (int i = 0; i < 20; ++i) {
    const int descriptor = ConnectTo(endpoint_->port());
    // The begin of a handshake, and a reset.
    ASSERT_EQ(send(descriptor, "\x16\x03\x01\x00\x05", 5, MSG_NOSIGNAL), 5);
    const linger now = {1, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(descriptor);
  }
  EXPECT_NE(Ask(endpoint_->port(), tls_dir("reader")).find("pawl_answer 42"), std::string::npos);
}

TEST_F(MetricsEndpointTest, SilentConnectionsDoNotBlockScrapes) {
  std::vector<int> silent;
  for (int i = 0; i < 2 * kMetricsThreads; ++i) silent.push_back(ConnectTo(endpoint_->port()));
  EXPECT_NE(Ask(endpoint_->port(), tls_dir("reader")).find("pawl_answer 42"), std::string::npos);
  for (const int descriptor : silent) close(descriptor);
}

TEST_F(MetricsEndpointTest, DrippingHandshakesDoNotBlockScrapes) {
  const DrippingConnections dripping(endpoint_->port(), 2 * kMetricsThreads);
  EXPECT_NE(Ask(endpoint_->port(), tls_dir("reader")).find("pawl_answer 42"), std::string::npos);
}

TEST_F(MetricsEndpointTest, DrippingHandshakesDoNotDelayTheEnd) {
  auto dripping = std::make_unique<DrippingConnections>(endpoint_->port(), kMetricsThreads - 1);
  // An answer to a later connection shows that those are being served.
  ASSERT_NE(Ask(endpoint_->port(), tls_dir("reader")).find("pawl_answer 42"), std::string::npos);
  std::future<void> ended = std::async(std::launch::async, [this] { endpoint_ = nullptr; });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(kTimeoutSeconds)), std::future_status::ready);
  // Otherwise the destructor of the future waits for ever where the endpoint does.
  dripping = nullptr;
}

}  // namespace
}  // namespace pawl
