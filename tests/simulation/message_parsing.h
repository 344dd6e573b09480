// Parses the requests that simulated processes receive.
#ifndef PAWL_TESTS_SIMULATION_MESSAGE_PARSING_H_
#define PAWL_TESTS_SIMULATION_MESSAGE_PARSING_H_

#include <cstdlib>
#include <string>

#include "client_lib/rpc/message.h"

namespace pawl {

// REQUIRES: `bytes` is a Message written by the product's own code.
template <typename Message>
Message MustParse(const IncomingMessage& from) {
  std::string bytes(from.bytes.size(), '\0');
  from.bytes.CopyTo(bytes.data());
  Message message;
  if (!message.ParseFromString(bytes)) std::abort();
  return message;
}

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_MESSAGE_PARSING_H_
