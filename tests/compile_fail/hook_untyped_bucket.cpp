// SPDX-License-Identifier: Apache-2.0
// A hook that treats a bucket's elements as floats, which they are not in a model in double.
// expect: a bucket's elements are float or double.*bucket.span<float>\(\)
#include <weft/weft.hpp>

using namespace weft;

struct Mine {
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) {
#ifdef WEFT_FAIL
    return data_ranks.all_reduce_async(std::span<float>(static_cast<float*>(bucket.data()), bucket.elements));
#else
    return data_ranks.all_reduce_async(bucket.span<float>());
#endif
  }
};
