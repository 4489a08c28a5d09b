# Write the files by which Linux describes CPUs and NUMA nodes; variables: out sockets cores threads numa memory.
# The folders are there already: awk has no mkdir.

function write_file(path, text) { print text > (out "/" path); close(out "/" path) }

# CPUs whose core lies in [first, first + count): the list form, then the mask form, of the same set.
function list_of(first, count,    t, text) {
  for (t = 0; t < threads; t++)
    text = text (t ? "," : "") range(first + t * all_cores, count)
  return text
}
function range(first, count) { return count > 1 ? first "-" (first + count - 1) : first "" }

function mask_of(first, count,    t, c, words, w, text) {
  words = int((all_cpus + 31) / 32)
  for (w = 0; w < words; w++) word[w] = 0
  for (t = 0; t < threads; t++)
    for (c = first + t * all_cores; c < first + t * all_cores + count; c++) word[int(c / 32)] += 2 ^ (c % 32)
  for (w = words - 1; w >= 0; w--) text = text (text == "" ? "" : ",") sprintf("%08x", word[w])
  return text
}

function write_cpu(cpu, core,    folder, socket) {
  folder = "cpu/cpu" cpu "/topology"
  socket = int(core / cores)
  write_file(folder "/physical_package_id", socket)
  write_file(folder "/die_id", 0)
  write_file(folder "/core_id", core % cores)
  write_file(folder "/thread_siblings_list", list_of(core, 1))
  write_file(folder "/thread_siblings", mask_of(core, 1))
  write_file(folder "/core_cpus_list", list_of(core, 1))
  write_file(folder "/core_cpus", mask_of(core, 1))
  write_file(folder "/core_siblings_list", list_of(socket * cores, cores))
  write_file(folder "/core_siblings", mask_of(socket * cores, cores))
  write_file(folder "/package_cpus_list", list_of(socket * cores, cores))
  write_file(folder "/package_cpus", mask_of(socket * cores, cores))
}

function write_node(node, per_node,    folder, other, text) {
  folder = "node/node" node
  write_file(folder "/cpulist", list_of(node * per_node, per_node))
  write_file(folder "/cpumap", mask_of(node * per_node, per_node))
  for (other = 0; other < all_nodes; other++)
    text = text (other ? " " : "") (other == node ? 10 : int(other / numa) == int(node / numa) ? 12 : 32)
  write_file(folder "/distance", text)
  write_file(folder "/meminfo", sprintf("Node %d MemTotal: %d kB\nNode %d MemFree: %d kB", node, memory * 1024 / all_nodes, node, memory * 1024 / all_nodes))
}

BEGIN {
  all_cores = sockets * cores
  all_cpus = all_cores * threads
  all_nodes = sockets * numa
  split("online possible present", files, " ")
  for (i in files) {
    write_file("cpu/" files[i], range(0, all_cpus))
    if (files[i] != "present") write_file("node/" files[i], range(0, all_nodes))
  }
  for (cpu = 0; cpu < all_cpus; cpu++) write_cpu(cpu, cpu % all_cores)
  for (node = 0; node < all_nodes; node++) write_node(node, all_cores / all_nodes)
}
