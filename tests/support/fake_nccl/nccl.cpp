// SPDX-License-Identifier: Apache-2.0
// NCCL's part of the test double. A collective is done by the rank that comes last to it, under the lock of its clique; a message
// by its receiver. Both wait on their stream for the others, and leave when their communicator is aborted.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/reduce.hpp>

#include "support/fake_nccl/internal.hpp"

namespace fake_nccl {
namespace {

enum class Kind { all_reduce, reduce, reduce_scatter, broadcast, all_gather, send, receive };

struct Operation {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction;
  int root;  // or the other rank
  ncclComm_t comm;
  cudaStream_t stream;
  std::uint64_t number = 0;
};

weft::DataType type_of(ncclDataType_t type) {
  using enum weft::DataType;
  constexpr weft::DataType types[] = {int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16};
  return types[int(type)];
}
std::size_t width_of(ncclDataType_t type) { return weft::size_of(type_of(type)); }
weft::comm::Combine combine_of(weft::DataType type) {
  return weft::comm::elements_of<std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t,
                                 weft::float16, float, double, weft::bfloat16>(type, weft::comm::MemoryKind::host, nullptr, 0)
      .combine;
}
weft::Reduction reduction_of(ncclRedOp_t op) {
  return op == ncclMax   ? weft::Reduction::max
         : op == ncclMin ? weft::Reduction::min
         : op == ncclAvg ? weft::Reduction::average
                         : weft::Reduction::sum;
}

struct Slot {
  std::vector<const Operation*> arrived;
  bool done = false;
};
struct Message {
  const Operation* from;
  bool taken = false;
};
struct Splitting {
  std::vector<int> colors, keys;
  int arrived = 0;
  std::map<int, std::shared_ptr<struct Clique>> cliques;
};

/// What a connection belongs to: one of a kind of collective, or the messages from a rank to another.
using Connection = std::array<std::size_t, 5>;

struct Clique {
  std::mutex mutex;
  std::map<Connection, std::set<int>> connecting;  // ranks that have come to make it
  std::condition_variable changed;
  int size = 0, joined = 0;
  std::map<std::uint64_t, Slot> slots;
  std::map<std::pair<int, int>, std::deque<Message*>> messages;
  std::map<std::uint64_t, Splitting> splittings;
};

/// What outlives a communicator while its kernels leave.
struct Life {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  bool aborted = false;  // under the clique's mutex
  std::uint64_t collectives = 0;
  void abort() {
    std::lock_guard lock(clique->mutex);
    aborted = true;
    clique->changed.notify_all();
  }
};
/// Communicators that share resources: a parent with splitShare and its children. They have one flag for aborts.
struct Family {
  std::mutex mutex;
  std::vector<std::shared_ptr<Life>> lives;
  std::vector<std::shared_ptr<Life>> all() {
    std::lock_guard lock(mutex);
    return lives;
  }
};

std::atomic<int> living{0}, abortions{0}, hung{0}, late{0}, started{0}, intruded{0};

/// Kernels that run on each GPU: an abort waits for those of its own, as freeing memory does.
struct Running {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, int> kernels;
};
Running& running() {
  static Running running;
  return running;
}
class Counted {
 public:
  explicit Counted(int device) : device_(device) { add(1); }
  ~Counted() { add(-1); }

 private:
  void add(int n) {
    std::lock_guard lock(running().mutex);
    running().kernels[device_] += n;
    running().changed.notify_all();
  }
  int device_;
};

/// A true abort would wait for ever.
void wait_for_kernels(int device) {
  auto& on = running();
  std::unique_lock lock(on.mutex);
  if (!on.changed.wait_for(lock, std::chrono::seconds(2), [&] { return on.kernels[device] == 0; })) ++hung;
}
thread_local std::string last_error;
thread_local int depth = 0, calls_here = 0;
thread_local std::vector<Operation> grouped;
thread_local std::vector<int> aborting;

std::mutex existing_mutex;
std::set<ncclComm_t> existing;  // made, and neither destroyed nor aborted
bool exists(ncclComm_t comm) {
  std::lock_guard lock(existing_mutex);
  return existing.contains(comm);
}

std::mutex ids_mutex;
std::map<std::uint64_t, std::shared_ptr<Clique>> ids;
std::uint64_t next_id = 1;

}  // namespace
}  // namespace fake_nccl

struct ncclComm {
  ncclComm(std::shared_ptr<fake_nccl::Life> l, int n, int d, const ncclConfig_t& config,
           std::shared_ptr<fake_nccl::Family> of = std::make_shared<fake_nccl::Family>())
      : life(std::move(l)),
        size(n),
        device(d),
        blocking(config.blocking != 0),
        shares(config.splitShare == 1),
        family(std::move(of)) {
    {
      std::lock_guard lock(family->mutex);
      family->lives.push_back(life);
    }
    std::lock_guard lock(fake_nccl::existing_mutex);
    fake_nccl::existing.insert(this);
  }
  ~ncclComm() {
    std::lock_guard lock(fake_nccl::existing_mutex);
    fake_nccl::existing.erase(this);
  }
  std::shared_ptr<fake_nccl::Life> life;
  int size, device;
  bool blocking, shares;
  std::shared_ptr<fake_nccl::Family> family;
  std::atomic<int> inside{0};  // calls that have not returned
  std::uint64_t splits = 0;
  int polls = 0;                  // what goes on takes at least so many looks
  std::function<bool()> pending;  // what goes on; true once it is done
  bool finalized = false;
};

namespace fake_nccl {

int alive() { return living.load(); }
int aborted() { return abortions.load(); }
int call_threads() { return started.load(); }
int intrusions() { return intruded.load(); }
int own_calls() { return calls_here; }
int late_calls() { return late.load(); }
int hung_aborts() { return hung.load(); }

namespace {

ncclResult_t refuse(ncclResult_t code, const char* why) {
  last_error = why;
  return code;
}

bool same(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.reduction == b.reduction && a.root == b.root;
}

void carry_out(const std::vector<const Operation*>& all) {
  const Operation& first = *all[0];
  const std::size_t n = all.size(), width = width_of(first.type), bytes = first.count * width;
  const auto input_bytes = first.kind == Kind::reduce_scatter ? n * bytes : bytes;
  std::vector<std::vector<char>> inputs;
  for (const Operation* op : all) {
    const bool gives = first.kind != Kind::broadcast || op == all[std::size_t(first.root)];
    const auto* begin = static_cast<const char*>(op->in);
    inputs.push_back(gives ? std::vector<char>(begin, begin + input_bytes) : std::vector<char>());
  }
  const auto reduced = [&](std::size_t from) {
    std::vector<const void*> rows;
    for (const auto& input : inputs) rows.push_back(input.data() + from * bytes);
    std::vector<char> sum(bytes);
    void* out[] = {sum.data()};
    combine_of(type_of(first.type))(reduction_of(first.reduction), rows, {out, 1}, 0, first.count);
    return sum;
  };
  for (std::size_t r = 0; r < n; ++r) {
    auto* out = static_cast<char*>(all[r]->out);
    const auto put = [&](const std::vector<char>& data, std::size_t at = 0) { std::memcpy(out + at, data.data(), data.size()); };
    switch (first.kind) {
      case Kind::all_reduce: put(reduced(0)); break;
      case Kind::reduce:
        if (int(r) == first.root) put(reduced(0));
        break;
      case Kind::reduce_scatter: put(reduced(r)); break;
      case Kind::broadcast: put(inputs[std::size_t(first.root)]); break;
      case Kind::all_gather:
        for (std::size_t q = 0; q < n; ++q) put(inputs[q], q * bytes);
        break;
      case Kind::send:
      case Kind::receive: break;
    }
  }
}

/// One group of calls of one communicator, as its kernel.
void kernel(const std::shared_ptr<Life>& life, std::vector<Operation> operations) {
  Clique& clique = *life->clique;
  const Counted counted(life->device);
  std::unique_lock lock(clique.mutex);
  for (Operation& op : operations)  // here and not where it is called: a recorded call runs many times
    if (op.kind != Kind::send && op.kind != Kind::receive) op.number = ++life->collectives;
  std::vector<std::unique_ptr<Message>> sent;
  for (const Operation& op : operations) {
    if (op.kind != Kind::send) continue;
    sent.push_back(std::make_unique<Message>(Message{&op}));
    clique.messages[{life->rank, op.root}].push_back(sent.back().get());
  }
  clique.changed.notify_all();
  for (const Operation& op : operations) {
    if (life->aborted) break;
    if (op.kind == Kind::send) continue;
    if (op.kind == Kind::receive) {
      auto& queue = clique.messages[{op.root, life->rank}];
      clique.changed.wait(lock, [&] { return life->aborted || !queue.empty(); });
      if (life->aborted) break;
      Message* message = queue.front();
      // What differs in length would be garbage or a hang on a GPU; here it hangs.
      if (message->from->count * width_of(message->from->type) != op.count * width_of(op.type)) {
        clique.changed.wait(lock, [&] { return life->aborted; });
        break;
      }
      queue.pop_front();
      std::memcpy(op.out, message->from->in, op.count * width_of(op.type));
      message->taken = true;
      clique.changed.notify_all();
      continue;
    }
    Slot& slot = clique.slots[op.number];
    slot.arrived.resize(std::size_t(clique.size));
    slot.arrived[std::size_t(life->rank)] = &op;
    const bool all = std::find(slot.arrived.begin(), slot.arrived.end(), nullptr) == slot.arrived.end();
    if (all && std::all_of(slot.arrived.begin(), slot.arrived.end(), [&](const Operation* other) { return same(*other, op); })) {
      carry_out(slot.arrived);
      slot.done = true;
      clique.changed.notify_all();
    }
    clique.changed.wait(lock, [&] { return life->aborted || slot.done; });
    if (!slot.done) slot.arrived[std::size_t(life->rank)] = nullptr;  // it reads and writes nothing of this rank any more
  }
  clique.changed.wait(lock, [&] {
    return life->aborted || std::all_of(sent.begin(), sent.end(), [](const auto& message) { return message->taken; });
  });
  for (const auto& message : sent) {
    auto& queue = clique.messages[{life->rank, message->from->root}];
    if (!message->taken) queue.erase(std::find(queue.begin(), queue.end(), message.get()));
  }
}

/// Waits until every rank that a connection joins has come to make it. False if it was aborted.
bool connect(ncclComm& comm, const std::vector<Operation>& operations) {
  ++comm.inside;
  const auto life = comm.life;
  Clique& clique = *life->clique;
  std::unique_lock lock(clique.mutex);
  const auto connection_of = [&](const Operation& op) {
    const bool message = op.kind == Kind::send || op.kind == Kind::receive;
    const auto me = std::size_t(life->rank), other = std::size_t(op.root);
    if (message) return Connection{1, op.kind == Kind::send ? me : other, op.kind == Kind::send ? other : me, 0, 0};
    return Connection{std::size_t(op.kind) + 2, op.count, std::size_t(op.type), std::size_t(op.reduction), other};
  };
  for (const Operation& op : operations) clique.connecting[connection_of(op)].insert(life->rank);
  clique.changed.notify_all();
  clique.changed.wait(lock, [&] {
    return life->aborted || std::all_of(operations.begin(), operations.end(), [&](const Operation& op) {
             const auto connection = connection_of(op);
             const std::size_t ranks = connection[0] > 1 ? std::size_t(clique.size) : connection[1] == connection[2] ? 1 : 2;
             return clique.connecting[connection].size() == ranks;
           });
  });
  const bool made = !life->aborted;
  lock.unlock();
  --comm.inside;
  return made;
}

/// Starts what a group holds: after a few looks at the communicators, as connections would take; of those that block, after the
/// connections.
ncclResult_t submit(std::vector<Operation> operations) {
  std::map<ncclComm_t, std::vector<Operation>> by_comm;
  for (Operation& op : operations) {
    by_comm[op.comm].push_back(op);
  }
  for (auto& [comm, list] : by_comm) {
    if (comm->blocking) {
      if (!connect(*comm, list)) return refuse(ncclInternalError, "aborted");
      const cudaStream_t stream = list.front().stream;
      enqueue(stream,
              [life = comm->life, list = std::make_shared<std::vector<Operation>>(std::move(list))] { kernel(life, *list); });
      continue;
    }
    ++started;
    comm->polls = 2;
    comm->pending = [comm = comm, list = std::make_shared<std::vector<Operation>>(std::move(list))] {
      enqueue(list->front().stream, [life = comm->life, list] { kernel(life, *list); });
      return true;
    };
  }
  return std::all_of(by_comm.begin(), by_comm.end(), [](const auto& of) { return of.first->blocking; }) ? ncclSuccess
                                                                                                        : ncclInProgress;
}

void leave_family(ncclComm& comm) {
  std::lock_guard lock(comm.family->mutex);
  std::erase(comm.family->lives, comm.life);
}

ncclResult_t take(Operation op) {
  ncclComm_t comm = op.comm;
  if (comm == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready: its last call returned ncclInProgress");
  if (comm->finalized) return refuse(ncclInvalidUsage, "the communicator is finalized");
  if (op.root < 0 || op.root >= comm->size) return refuse(ncclInvalidArgument, "no such rank");
  if (device_of(op.stream) != comm->device) return refuse(ncclInvalidUsage, "the stream is of another device");
  ++calls_here;
  if (priority_of(op.stream) != greatest_priority) ++late;
  const std::size_t n = std::size_t(comm->size), bytes = op.count * width_of(op.type);
  const bool writes = op.kind != Kind::send && (op.kind != Kind::reduce || op.root == comm->life->rank);
  const bool reads = op.kind != Kind::receive && (op.kind != Kind::broadcast || op.root == comm->life->rank);
  if ((reads && !on_device(op.in, op.kind == Kind::reduce_scatter ? n * bytes : bytes)) ||
      (writes && !on_device(op.out, op.kind == Kind::all_gather ? n * bytes : bytes)))
    return refuse(ncclInvalidArgument, "a buffer is not device memory");
  if (depth > 0) return grouped.push_back(op), ncclSuccess;
  return submit({op});
}

}  // namespace
}  // namespace fake_nccl

using namespace fake_nccl;

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return int(code) < 8 ? texts[int(code)] : "unknown";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }
ncclResult_t ncclGetVersion(int* version) {
  *version = faults().version != 0 ? faults().version : NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (faults().no_id) return refuse(ncclSystemError, "no socket interface found");
  std::lock_guard lock(ids_mutex);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &next_id, sizeof next_id);
  ids[next_id++] = std::make_shared<Clique>();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) return refuse(ncclInvalidUsage, "a call that blocks");
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  std::shared_ptr<Clique> clique;
  {
    std::lock_guard lock(ids_mutex);
    const auto found = ids.find(number);
    if (found == ids.end()) return refuse(ncclInvalidArgument, "no such id");
    clique = found->second;
  }
  *comm = new ncclComm(std::make_shared<Life>(Life{clique, rank, device()}), size, device(), *config);
  ++living;
  {
    std::lock_guard lock(clique->mutex);
    clique->size = size;
    clique->joined += faults().never_connects ? 0 : 1;
  }
  (*comm)->polls = 2;
  (*comm)->pending = [clique, size] {
    std::lock_guard lock(clique->mutex);
    return clique->joined == size;
  };
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready: its last call returned ncclInProgress");
  if (comm->blocking) return refuse(ncclInvalidUsage, "a call that blocks");  // whether the new one blocks is its own affair
  const auto clique = comm->life->clique;
  const int rank = comm->life->rank, size = comm->size;
  const std::uint64_t number = ++comm->splits;
  {
    std::lock_guard lock(clique->mutex);
    Splitting& splitting = clique->splittings[number];
    splitting.colors.resize(std::size_t(size));
    splitting.keys.resize(std::size_t(size));
    splitting.colors[std::size_t(rank)] = color;
    splitting.keys[std::size_t(rank)] = key;
    ++splitting.arrived;
  }
  comm->polls = 2;
  comm->pending = [clique, number, rank, size, color, key, made, device = comm->device, config = *config,
                   family = comm->shares ? comm->family : std::make_shared<Family>()] {
    std::lock_guard lock(clique->mutex);
    Splitting& splitting = clique->splittings[number];
    if (splitting.arrived < size) return false;
    if (color == NCCL_SPLIT_NOCOLOR) return *made = nullptr, true;
    int place = 0, members = 0;
    for (int q = 0; q < size; ++q) {
      if (splitting.colors[std::size_t(q)] != color) continue;
      ++members;
      const int other = splitting.keys[std::size_t(q)];
      if (other < key || (other == key && q < rank)) ++place;
    }
    auto& part = splitting.cliques[color];
    if (!part) {
      part = std::make_shared<Clique>();
      part->size = members;
    }
    *made = new ncclComm(std::make_shared<Life>(Life{part, place, device}), members, device, config, family);
    ++living;
    return true;
  };
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (!exists(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  *state = ncclSuccess;
  if (faults().asynchronous != ncclSuccess) {
    last_error = "the link is down";
    *state = faults().asynchronous;
  } else if (comm->pending) {
    if (--comm->polls > 0 || !comm->pending()) *state = ncclInProgress;
    else comm->pending = nullptr;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready");
  if (std::exchange(comm->finalized, true)) return refuse(ncclInvalidUsage, "finalized twice");
  if (comm->blocking) return ncclSuccess;
  comm->polls = 2;
  comm->pending = [] { return true; };
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready");
  if (comm->inside != 0) ++intruded;
  leave_family(*comm);
  delete comm;
  --living;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm->inside != 0) ++intruded;  // it is freed while another thread is in it
  for (const auto& life : comm->family->all()) life->abort();
  leave_family(*comm);
  const int device = comm->device;
  delete comm;
  --living;
  ++abortions;
  if (depth > 0) aborting.push_back(device);  // the group waits when all its communicators are aborted
  else wait_for_kernels(device);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  for (const int device : std::exchange(aborting, {})) wait_for_kernels(device);
  return submit(std::exchange(grouped, {}));
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return take({Kind::all_reduce, in, out, count, type, op, 0, comm, stream});
}
ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return take({Kind::reduce, in, out, count, type, op, root, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return take({Kind::reduce_scatter, in, out, count, type, op, 0, comm, stream});
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return take({Kind::broadcast, in, out, count, type, ncclSum, root, comm, stream});
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return take({Kind::all_gather, in, out, count, type, ncclSum, 0, comm, stream});
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream) {
  return take({Kind::send, in, nullptr, count, type, ncclSum, to, comm, stream});
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream) {
  return take({Kind::receive, nullptr, out, count, type, ncclSum, from, comm, stream});
}

}  // extern "C"
