// Which Pawl this is, as every binary says on --version.
#ifndef PAWL_CLIENT_LIB_BASE_VERSION_H_
#define PAWL_CLIENT_LIB_BASE_VERSION_H_

namespace pawl {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_VERSION_H_
