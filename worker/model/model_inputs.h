// What a model knows of its data in advance.
#ifndef PAWL_WORKER_MODEL_MODEL_INPUTS_H_
#define PAWL_WORKER_MODEL_MODEL_INPUTS_H_

#include "client_lib/job/field_layout.h"
#include "worker/data/batch.h"

namespace pawl {

struct ModelInputs {
  DataShape shape;
  FieldLayout layout;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_MODEL_INPUTS_H_
