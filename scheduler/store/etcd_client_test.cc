#include "scheduler/store/etcd_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

using nlohmann::json;

MonotonicTime Soon() { return Clock::Real().Now() + std::chrono::seconds(20); }

// Answers every connection's first request with the same bytes.
class FixedAnswer {
 public:
  explicit FixedAnswer(std::string answer)
      : answer_(std::move(answer)), socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~FixedAnswer() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }

  const std::string& endpoint() const { return endpoint_; }
  int requests() const { return requests_; }

 private:
  void Serve() {
    while (true) {
      const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      // The requests here fit into one packet of the loopback.
      char request[4096];
      if (recv(connection, request, sizeof(request), 0) > 0) {
        ++requests_;
        for (size_t sent = 0; sent < answer_.size();) {
          const ssize_t bytes =
              send(connection, answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
          if (bytes <= 0) break;
          sent += bytes;
        }
      }
      close(connection);
    }
  }

  const std::string answer_;
  const int socket_;
  std::string endpoint_;
  std::atomic<int> requests_{0};
  std::thread thread_;
};

std::string Http(absl::string_view code, absl::string_view body) {
  return absl::StrCat("HTTP/1.1 ", code, "\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", body);
}

absl::StatusOr<json> CallAgainst(const std::string& answer) {
  const FixedAnswer server(answer);
  return EtcdClient({server.endpoint()}, std::chrono::milliseconds(5000))
      .Call("/v3/kv/range", json::object(), Soon());
}

TEST(EtcdClientTest, AnObjectIsReturned) {
  const auto answer = CallAgainst(Http("200 OK", R"({"count": "12", "kvs": []})"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*EtcdIntegerAt(*answer, "count"), 12);
}

TEST(EtcdClientTest, EtcdsErrorKeepsItsCodeAndWords) {
  const struct {
    int sent;
    absl::StatusCode expected;
  } cases[] = {{3, absl::StatusCode::kInvalidArgument},
               {4, absl::StatusCode::kUnavailable},
               {5, absl::StatusCode::kNotFound},
               {8, absl::StatusCode::kResourceExhausted},
               // These two mean something else to a caller of StateStore.
               {9, absl::StatusCode::kInternal},
               {10, absl::StatusCode::kInternal},
               {14, absl::StatusCode::kUnavailable},
               {16, absl::StatusCode::kUnauthenticated},
               {0, absl::StatusCode::kInternal},
               {77, absl::StatusCode::kInternal}};
  for (const auto& [sent, expected] : cases) {
    const std::string body = absl::StrCat(R"({"message": "words of etcd", "code": )", sent, "}");
    const auto answer = CallAgainst(Http("400 Bad Request", body));
    EXPECT_EQ(answer.status().code(), expected) << answer.status();
    EXPECT_TRUE(absl::StrContains(answer.status().message(), "words of etcd")) << answer.status();
  }
}

TEST(EtcdClientTest, WhatIsNotEtcdIsQuoted) {
  for (const std::string& reply :
       {Http("404 Not Found", "no\nsuch page"), Http("200 OK", "no\nsuch page"),
        Http("302 Found", "no\nsuch page")}) {
    const auto answer = CallAgainst(reply);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnimplemented) << answer.status();
    EXPECT_TRUE(absl::StrContains(answer.status().message(), "no\\nsuch page")) << answer.status();
  }
  for (const char* body : {"", "[]", "12", "{", "null"}) {
    EXPECT_EQ(CallAgainst(Http("200 OK", body)).status().code(), absl::StatusCode::kUnimplemented)
        << body;
  }
}

TEST(EtcdClientTest, AnotherEndpointIsTriedWhereOneCannotServe) {
  const FixedAnswer good(Http("200 OK", R"({"count": "1"})"));
  for (const std::string& reply :
       {Http("503 Service Unavailable", "proxy"), std::string("not HTTP at all\n"), std::string(),
        Http("200 OK", std::string(kMaxEtcdAnswerBytes + 1, ' ')),
        Http("503 Service Unavailable", R"({"message": "no leader", "code": 14})")}) {
    const FixedAnswer bad(reply);
    EtcdClient client({bad.endpoint(), good.endpoint()}, std::chrono::milliseconds(5000));
    for (int i = 0; i < 2; ++i) {
      const auto answer = client.Call("/v3/kv/range", json::object(), Soon());
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(*EtcdIntegerAt(*answer, "count"), 1);
    }
    EXPECT_GE(bad.requests(), 1);
    EXPECT_LE(bad.requests(), 2)
        << "curl may repeat a request on a connection that was closed without an answer";
  }
}

TEST(EtcdClientTest, AnErrorOfEtcdIsNotRepeatedElsewhere) {
  const FixedAnswer refusing(Http("400 Bad Request", R"({"message": "too large", "code": 3})"));
  const FixedAnswer other(Http("200 OK", "{}"));
  EtcdClient client({refusing.endpoint(), other.endpoint()}, std::chrono::milliseconds(5000));
  EXPECT_EQ(client.Call("/v3/kv/put", json::object(), Soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other.requests(), 0);
}

TEST(EtcdClientTest, NothingIsSentAfterTheDeadline) {
  const FixedAnswer server(Http("200 OK", "{}"));
  EtcdClient client({server.endpoint()}, std::chrono::milliseconds(5000));
  const auto answer = client.Call("/v3/kv/put", json::object(), Clock::Real().Now());
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
  EXPECT_EQ(server.requests(), 0);
}

TEST(EtcdClientTest, MembersOfTheWrongTypeAreDataLoss) {
  const json answer =
      json::parse(R"({"integer": 7, "text": "-8", "words": "x", "list": [], "bytes": "AP8="})");
  EXPECT_EQ(*EtcdIntegerAt(answer, "integer"), 7);
  EXPECT_EQ(*EtcdIntegerAt(answer, "text"), -8);
  EXPECT_EQ(*EtcdIntegerAt(answer, "absent"), 0);
  EXPECT_EQ(EtcdIntegerAt(answer, "words").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(EtcdIntegerAt(answer, "list").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(*EtcdBytesAt(answer, "bytes"), std::string("\0\xff", 2));
  EXPECT_EQ(*EtcdBytesAt(answer, "absent"), "");
  EXPECT_EQ(EtcdBytesAt(answer, "integer").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(EtcdBytesAt(answer, "words").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(EtcdBytes(std::string("\0\xff", 2)), "AP8=");
}

}  // namespace
}  // namespace pawl
