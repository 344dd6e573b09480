// A TCP endpoint that accepts connections and never answers.
#ifndef PAWL_SCHEDULER_STORE_TESTING_SILENT_LISTENER_H_
#define PAWL_SCHEDULER_STORE_TESTING_SILENT_LISTENER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {

class SilentListener {
 public:
  SilentListener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
  }
  ~SilentListener() { close(socket_); }
  std::string endpoint() const { return absl::StrCat("127.0.0.1:", ntohs(address_.sin_port)); }

 private:
  const int socket_;
  sockaddr_in address_{};
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_TESTING_SILENT_LISTENER_H_
