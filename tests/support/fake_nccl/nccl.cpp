// SPDX-License-Identifier: Apache-2.0
// NCCL's part of the test double. The last rank to arrive executes a collective, under the lock of its clique; the receiver
// executes a message. Both wait on their stream for the others, and stop when their communicator is aborted. Non-blocking
// communicators launch from a separate thread after a delay; until then a stream holds nothing of the call.
#include <algorithm>
#include <array>
#include <atomic>
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
#include "support/fake_nccl/room.hpp"

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

/// The owner of a connection: one kind of collective, or the messages from one rank to another.
using Connection = std::array<std::size_t, 5>;

struct Clique {
  std::mutex mutex;
  std::map<Connection, std::set<int>> connecting;  // ranks that have arrived to create it
  std::condition_variable changed;
  int size = 0, joined = 0;
  std::map<std::uint64_t, Slot> slots;
  std::map<std::pair<int, int>, std::deque<Message*>> messages;
  std::map<std::uint64_t, Splitting> splittings;
};

/// State that outlives a communicator while its kernels finish.
struct Life {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  std::atomic<bool> aborted = false;
  std::atomic<int> launching = 0, unfinished = 0;  // groups of calls; a recorded one is unfinished while its graph exists
  std::uint64_t collectives = 0;                   // under the clique's mutex
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

std::atomic<int> living{0}, abortions{0}, launches{0}, late{0}, started{0};

std::shared_ptr<Life> make_life(std::shared_ptr<Clique> clique, int rank, int device) {
  auto life = std::make_shared<Life>();
  life->clique = std::move(clique);
  life->rank = rank;
  life->device = device;
  return life;
}

/// All threads of the rank have seen the end of aborted work, since they are notified of the failure.
void wait_for_abort(int device) {
  for (const Clock& clock : wait_for_device(device, "ncclCommAbort")) {
    std::lock_guard lock(clocks_mutex());
    settle(clock, Settled::for_all);
  }
}
thread_local std::string last_error;
thread_local int depth = 0, calls_here = 0;
thread_local std::vector<Operation> grouped;
thread_local std::set<int> aborting;

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
    std::lock_guard lock(family->mutex);
    family->lives.push_back(life);
  }
  std::shared_ptr<fake_nccl::Life> life;
  int size, device;
  bool blocking, shares;
  std::shared_ptr<fake_nccl::Family> family;
  std::atomic<int> inside{0};  // calls that have not returned
  std::uint64_t splits = 0;
  int polls = 0;                  // minimum number of polls for unfinished operations
  std::function<bool()> pending;  // the unfinished operation; true once it is done
  bool finalized = false;
  const char* ended = nullptr;  // how it ended; a communicator is never freed, so that a later use is detected
};

namespace fake_nccl {

int alive() { return living.load(); }
int aborted() { return abortions.load(); }
int call_threads() { return started.load(); }
int own_calls() { return calls_here; }
int late_calls() { return late.load(); }

namespace {

ncclResult_t refuse(ncclResult_t code, const char* why) {
  last_error = why;
  return code;
}

/// True if the communicator is gone: using it is a report.
bool gone(ncclComm_t comm, const char* function) {
  if (comm != nullptr && comm->ended == nullptr) return false;
  if (comm == nullptr) return last_error = "no communicator", true;
  report(std::string(function) + " on a communicator that was " + comm->ended);
  last_error = "no such communicator";
  return true;
}
void end(ncclComm_t comm, const char* how) {
  if (comm->inside != 0) report(std::string("a communicator was ") + how + " while a thread was inside a call of its");
  {
    std::lock_guard lock(comm->family->mutex);
    std::erase(comm->family->lives, comm->life);
  }
  comm->ended = how;
  comm->pending = nullptr;
  --living;
}

const char* name_of(Kind kind) {
  constexpr const char* names[] = {"ncclAllReduce", "ncclReduce", "ncclReduceScatter", "ncclBroadcast",
                                   "ncclAllGather", "ncclSend",   "ncclRecv"};
  return names[int(kind)];
}
/// The bytes that this rank's part of an operation reads and writes.
Range read_by(const Operation& op, int rank, int size) {
  const std::size_t bytes = op.count * width_of(op.type);
  const bool reads = op.kind != Kind::receive && (op.kind != Kind::broadcast || op.root == rank);
  return reads ? Range{op.in, op.kind == Kind::reduce_scatter ? std::size_t(size) * bytes : bytes} : Range{};
}
Range written_by(const Operation& op, int rank, int size) {
  const std::size_t bytes = op.count * width_of(op.type);
  const bool writes = op.kind != Kind::send && (op.kind != Kind::reduce || op.root == rank);
  return writes ? Range{op.out, op.kind == Kind::all_gather ? std::size_t(size) * bytes : bytes} : Range{};
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
    const auto* begin = static_cast<const char*>(seen_by_streams(op->in));
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
    auto* out = static_cast<char*>(seen_by_streams(all[r]->out));
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
  const Occupied occupied(life->device, life->aborted);
  std::unique_lock lock(clique.mutex);
  for (Operation& op : operations)  // here and not at the call, since a recorded call runs many times
    if (op.kind != Kind::send && op.kind != Kind::receive) op.number = ++life->collectives;
  const auto leave_in_pieces = [&](const Operation& op) {
    leave_undefined(written_by(op, life->rank, clique.size), name_of(op.kind));
  };
  std::vector<std::unique_ptr<Message>> sent;
  for (const Operation& op : operations) {
    if (op.kind != Kind::send) continue;
    sent.push_back(std::make_unique<Message>(Message{&op}));
    clique.messages[{life->rank, op.root}].push_back(sent.back().get());
  }
  clique.changed.notify_all();
  for (const Operation& op : operations) {
    if (op.kind == Kind::send) continue;
    if (op.kind == Kind::receive) {
      auto& queue = clique.messages[{op.root, life->rank}];
      clique.changed.wait(lock, [&] { return life->aborted || !queue.empty(); });
      if (life->aborted) {
        leave_in_pieces(op);
        continue;
      }
      Message* message = queue.front();
      // Different lengths would be garbage or a hang on a GPU; here they hang.
      if (message->from->count * width_of(message->from->type) != op.count * width_of(op.type)) {
        clique.changed.wait(lock, [&] { return life->aborted.load(); });
        leave_in_pieces(op);
        continue;
      }
      queue.pop_front();
      std::memcpy(seen_by_streams(op.out), seen_by_streams(message->from->in), op.count * width_of(op.type));
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
    if (!slot.done) {
      slot.arrived[std::size_t(life->rank)] = nullptr;  // it reads and writes nothing of this rank any more
      leave_in_pieces(op);
    }
  }
  clique.changed.wait(lock, [&] {
    return life->aborted || std::all_of(sent.begin(), sent.end(), [](const auto& message) { return message->taken; });
  });
  for (const auto& message : sent) {
    auto& queue = clique.messages[{life->rank, message->from->root}];
    if (!message->taken) queue.erase(std::find(queue.begin(), queue.end(), message.get()));
  }
}

/// While it exists, a thread is inside a call of the communicator, which must not be freed.
class Inside {
 public:
  explicit Inside(ncclComm& comm) : comm_(comm) { ++comm_.inside; }
  ~Inside() { --comm_.inside; }
  Inside(const Inside&) = delete;

 private:
  ncclComm& comm_;
};

/// Waits until every rank of a connection has arrived to create it, and a further delay. Returns false if it was aborted.
bool connect(ncclComm& comm, const std::vector<Operation>& operations) {
  const auto life = comm.life;
  Clique& clique = *life->clique;
  const auto connection_of = [&](const Operation& op) {
    const bool message = op.kind == Kind::send || op.kind == Kind::receive;
    const auto me = std::size_t(life->rank), other = std::size_t(op.root);
    if (message) return Connection{1, op.kind == Kind::send ? me : other, op.kind == Kind::send ? other : me, 0, 0};
    return Connection{std::size_t(op.kind) + 2, op.count, std::size_t(op.type), std::size_t(op.reduction), other};
  };
  bool first = false;
  {
    std::unique_lock lock(clique.mutex);
    for (const Operation& op : operations) first = clique.connecting[connection_of(op)].insert(life->rank).second || first;
    clique.changed.notify_all();
    clique.changed.wait(lock, [&] {
      return life->aborted || std::all_of(operations.begin(), operations.end(), [&](const Operation& op) {
               const auto connection = connection_of(op);
               const std::size_t ranks = connection[0] > 1 ? std::size_t(clique.size) : connection[1] == connection[2] ? 1 : 2;
               return clique.connecting[connection].size() == ranks;
             });
    });
  }
  if (first) random_delay(unsigned(++launches));
  return !life->aborted;
}

/// A group of calls of one communicator as one task of its stream or of a graph.
Task task_of(const ncclComm& comm, std::vector<Operation> list) {
  Task task{name_of(list.front().kind), nullptr, {}, {}};
  for (const Operation& op : list) {
    task.reads.push_back(read_by(op, comm.life->rank, comm.size));
    task.writes.push_back(written_by(op, comm.life->rank, comm.size));
  }
  ++comm.life->unfinished;
  const std::shared_ptr<void> unfinished(nullptr, [life = comm.life](void*) { --life->unfinished; });
  task.run = [life = comm.life, unfinished, list = std::move(list)] { kernel(life, list); };
  return task;
}

/// Starts the operations of a group. For a non-blocking communicator: in a thread, after a delay. The work comes after everything
/// for which the caller has waited, and after the stream's work at that time. For a blocking one: here, after connections.
ncclResult_t submit(std::vector<Operation> operations) {
  std::map<ncclComm_t, std::vector<Operation>> by_comm;
  for (Operation& op : operations) {
    by_comm[op.comm].push_back(op);
  }
  for (auto& [comm, list] : by_comm) {
    const cudaStream_t stream = list.front().stream;
    if (comm->blocking) {
      const Inside inside(*comm);
      if (!connect(*comm, list)) return refuse(ncclInternalError, "aborted");
      enqueue(stream, task_of(*comm, std::move(list)), this_host_thread());
      continue;
    }
    ++started;
    Task task = task_of(*comm, std::move(list));
    Host host;
    {
      std::lock_guard lock(clocks_mutex());
      host = this_host_thread();
    }
    comm->polls = 2;
    if (is_recorded(stream)) {
      enqueue(stream, std::move(task), host);
      comm->pending = [] { return true; };
      continue;
    }
    ++comm->life->launching;
    comm->pending = [life = comm->life] { return life->launching == 0; };
    std::thread([life = comm->life, works = works_of(stream), task = std::move(task), host = std::move(host),
                 salt = unsigned(++launches)]() mutable {
      random_delay(salt);
      if (!life->aborted) works->add(std::move(task), host);
      --life->launching;
    }).detach();
  }
  return std::all_of(by_comm.begin(), by_comm.end(), [](const auto& of) { return of.first->blocking; }) ? ncclSuccess
                                                                                                        : ncclInProgress;
}

ncclResult_t take(Operation op) {
  ncclComm_t comm = op.comm;
  if (gone(comm, name_of(op.kind))) return ncclInvalidArgument;
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready: its last call returned ncclInProgress");
  if (comm->finalized) return refuse(ncclInvalidUsage, "the communicator is finalized");
  if (op.root < 0 || op.root >= comm->size) return refuse(ncclInvalidArgument, "no such rank");
  if (works_of(op.stream)->device != comm->device) return refuse(ncclInvalidUsage, "the stream is of another device");
  for (const Range& range : {read_by(op, comm->life->rank, comm->size), written_by(op, comm->life->rank, comm->size)})
    if (!on_device(range.begin, range.bytes)) return refuse(ncclInvalidArgument, "a buffer is not device memory");
  ++calls_here;
  if (priority_of(op.stream) != greatest_priority) ++late;
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
  *comm = new ncclComm(make_life(clique, rank, device()), size, device(), *config);
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
  if (gone(comm, "ncclCommSplit")) return ncclInvalidArgument;
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready: its last call returned ncclInProgress");
  if (comm->blocking) return refuse(ncclInvalidUsage, "a call that blocks");  // the new communicator may be non-blocking
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
    *made = new ncclComm(make_life(part, place, device), members, device, config, family);
    ++living;
    return true;
  };
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (gone(comm, "ncclCommGetAsyncError")) return ncclInvalidArgument;
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
  if (gone(comm, "ncclCommFinalize")) return ncclInvalidArgument;
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready");
  if (std::exchange(comm->finalized, true)) return refuse(ncclInvalidUsage, "finalized twice");
  if (comm->blocking) {
    const Inside inside(*comm);
    while (comm->life->unfinished != 0 && !comm->life->aborted) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return ncclSuccess;
  }
  comm->polls = 2;
  comm->pending = [life = comm->life] { return life->unfinished == 0; };  // it flushes issued operations
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (gone(comm, "ncclCommDestroy")) return ncclInvalidArgument;
  if (comm->pending) return refuse(ncclInvalidArgument, "the communicator is not ready");
  end(comm, "destroyed");
  return ncclSuccess;
}
/// Its kernels leave; it frees memory, and so waits for the whole GPU: for the kernels of other communicators, too.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (gone(comm, "ncclCommAbort")) return ncclInvalidArgument;
  const auto family = comm->family->all();
  for (const auto& life : family) life->abort();
  Occupied::notice_aborts();
  for (const auto& life : family)
    while (life->launching != 0) std::this_thread::yield();
  end(comm, "aborted");
  ++abortions;
  if (depth > 0) aborting.insert(comm->device);  // the group waits when all its communicators are aborted
  else wait_for_abort(comm->device);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  for (const int device : std::exchange(aborting, {})) wait_for_abort(device);
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
