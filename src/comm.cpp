// SPDX-License-Identifier: Apache-2.0
// The definitions of communicators, thread ranks, ranks of one machine and the store through which processes meet.
#include <weft/comm/agreement_impl.hpp>
#include <weft/comm/calls_impl.hpp>
#include <weft/comm/communicator_impl.hpp>
#include <weft/comm/flight_recorder_impl.hpp>
#include <weft/comm/launcher_impl.hpp>
#include <weft/comm/operation_impl.hpp>
#include <weft/comm/run_options_impl.hpp>
#include <weft/comm/self_impl.hpp>
#include <weft/comm/shared_memory/collective_impl.hpp>
#include <weft/comm/shared_memory/group_impl.hpp>
#include <weft/comm/shared_memory/memory_impl.hpp>
#include <weft/comm/store/client_impl.hpp>
#include <weft/comm/store/group_impl.hpp>
#include <weft/comm/store/process_impl.hpp>
#include <weft/comm/store/protocol_impl.hpp>
#include <weft/comm/store/ranks_impl.hpp>
#include <weft/comm/store/server_impl.hpp>
#include <weft/comm/store/sha256_impl.hpp>
#include <weft/comm/store/socket_impl.hpp>
#include <weft/comm/threads/exchange_impl.hpp>
#include <weft/comm/threads/group_impl.hpp>
#include <weft/comm/threads/mailbox_impl.hpp>
#include <weft/comm/threads/world_impl.hpp>
#include <weft/comm/threads_impl.hpp>
