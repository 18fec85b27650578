# cython: language_level=3
"""The patterns of a topic exchange as a tree of words, and how a key walks it.

A key walks the tree word by word with the set of nodes reached so far (a nondeterministic
automaton), so that a node is visited at most once for each word of the key; there is no
backtracking. How many visits the longest key could cost is known before any key comes: each node
keeps an upper bound for its subtree, which a binding updates along its path. The exchange refuses
patterns by it, so that a publish never has to be refused.

Nodes are structs in one array and their named children entries of one hash table: a visit touches
one cache line, and makes no object.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

cdef enum:
    NONE = -1
    # A routing key has 255 bytes, so 256 words at most, and a node is reached before the first of
    # them or behind each.
    PLACES_MAX = 257
    # What a pattern that fits costs besides, in visits: its bindings become Python objects.
    FOUND = 50

STAR = "*"
HASH = "#"

cdef struct Node:
    int32_t parent
    int32_t word             # of the edge from the parent; NONE for the wildcards
    int32_t star
    int32_t hash
    int32_t first            # of the children with a word, a list by `following` and `preceding`
    int32_t following
    int32_t preceding
    int32_t size             # nodes of the subtree, this one included
    int32_t patterns         # of the subtree that have bindings
    uint32_t seen            # the step that reached it last
    bint bound               # has bindings
    bint loops               # stands behind a `#`: stays reached, whatever words come
    int64_t dearest          # the largest `cost` among the children with a word
    int64_t cost             # most visits in the subtree when the node is entered once


cdef struct Edge:
    uint64_t key             # node << 32 | word, plus one: zero is an empty place
    int32_t child


cdef class TopicTree:
    """Patterns (lists of words in `broker.routing.topic.pattern_of`'s form) with their bindings.

    `cost` is how much the dearest routing key can cost at most: 1 for each visit of a node, and
    `FOUND` for each pattern that fits. `visits` counts the nodes that `match` visited so far.
    """

    cdef Node* nodes
    cdef Edge* edges
    cdef int32_t* reached
    cdef int32_t* following
    cdef int32_t room
    cdef int32_t used
    cdef int32_t free_node
    cdef uint64_t edges_mask
    cdef uint64_t edges_used
    cdef uint32_t step
    cdef readonly uint64_t visits
    cdef dict word_ids
    cdef list word_uses
    # Numbers of words that are not used any more, as a stack. Numbers, not Python's: each of those
    # would hold a page of objects in memory when all others of it are gone.
    cdef int32_t* free_words
    cdef int32_t free_words_count
    cdef int32_t free_words_room
    cdef list bindings

    def __cinit__(self):
        self.free_node = NONE
        self.word_ids = {}
        self.word_uses = []
        self.bindings = []
        self.edges_mask = 15
        self.edges = <Edge*> calloc(16, sizeof(Edge))
        if self.edges == NULL:
            raise MemoryError
        self.new_node(NONE, NONE, False)

    def __dealloc__(self):
        free(self.nodes)
        free(self.edges)
        free(self.reached)
        free(self.following)
        free(self.free_words)

    @property
    def cost(self) -> int:
        return self.nodes[0].cost

    @property
    def is_empty(self) -> bool:
        return self.nodes[0].size == 1 and self.bindings[0] is None

    def cost_with(self, list pattern) -> int:
        """The `cost` there would be with this pattern, too."""
        cdef int64_t cost
        cdef int32_t node = self.path(pattern)
        if self.nodes[node].bound:
            return self.nodes[0].cost
        self.mark(node, True)
        cost = self.nodes[0].cost
        self.mark(node, False)
        self.prune(node)
        return cost

    def add(self, list pattern, key, binding):
        """Keeps a binding under `key` at its pattern."""
        cdef int32_t node = self.path(pattern)
        if self.bindings[node] is None:
            self.bindings[node] = {}
            self.mark(node, True)
        self.bindings[node][key] = binding

    def remove(self, list pattern, key):
        """Forgets a binding. Raises KeyError if it is not there."""
        cdef int32_t node = self.path(pattern)
        found = self.bindings[node]
        if found is None:
            self.prune(node)
            raise KeyError(key)
        del found[key]
        if not found:
            self.bindings[node] = None
            self.mark(node, False)
            self.prune(node)

    def match(self, list words) -> list:
        """The bindings whose patterns fit the words of a routing key, as one dict per pattern."""
        cdef int32_t* swap
        cdef int32_t count
        cdef int32_t ahead
        cdef int32_t i
        cdef int32_t word
        cdef int32_t at
        cdef list found = []
        self.next_step()
        count = self.reach(self.reached, 0, 0)
        self.visits += count
        for text in words:
            word = self.word_ids.get(text, NONE)
            self.next_step()
            ahead = 0
            for i in range(count):
                at = self.reached[i]
                if self.nodes[at].loops:
                    ahead = self.reach(self.following, ahead, at)
                if self.nodes[at].star != NONE:
                    ahead = self.reach(self.following, ahead, self.nodes[at].star)
                if word != NONE and self.nodes[at].first != NONE:
                    at = self.child(at, word)
                    if at != NONE:
                        ahead = self.reach(self.following, ahead, at)
            swap = self.reached
            self.reached = self.following
            self.following = swap
            count = ahead
            self.visits += count
            if count == 0:
                break
        for i in range(count):
            bound = self.bindings[self.reached[i]]
            if bound is not None:
                found.append(bound)
        return found

    # -- walking -----------------------------------------------------------------------------------

    cdef void next_step(self) noexcept:
        cdef int32_t i
        self.step += 1
        if self.step == 0:
            # Wrapped round: a mark of long ago must not count as one of now.
            for i in range(self.used):
                self.nodes[i].seen = 0
            self.step = 1

    cdef inline int32_t reach(self, int32_t* into, int32_t count, int32_t node) noexcept:
        """Adds a node, once in a step, and the one behind its `#`, which may stand for no word."""
        while node != NONE and self.nodes[node].seen != self.step:
            self.nodes[node].seen = self.step
            into[count] = node
            count += 1
            node = self.nodes[node].hash
        return count

    cdef inline int32_t child(self, int32_t node, int32_t word) noexcept:
        cdef uint64_t key = (<uint64_t> node << 32 | <uint32_t> word) + 1
        cdef uint64_t at = mixed(key) & self.edges_mask
        while self.edges[at].key != 0:
            if self.edges[at].key == key:
                return self.edges[at].child
            at = (at + 1) & self.edges_mask
        return NONE

    # -- changing ----------------------------------------------------------------------------------

    cdef int32_t path(self, list pattern) except -2:
        """The node of a pattern, made with what leads to it if it is not there."""
        cdef int32_t node = 0
        cdef int32_t ahead
        for text in pattern:
            if text == STAR:
                ahead = self.nodes[node].star
                if ahead == NONE:
                    ahead = self.new_node(node, NONE, False)
                    self.nodes[node].star = ahead
                    self.climb(ahead, 0, 1, 0)
            elif text == HASH:
                ahead = self.nodes[node].hash
                if ahead == NONE:
                    ahead = self.new_node(node, NONE, True)
                    self.nodes[node].hash = ahead
                    self.climb(ahead, 0, 1, 0)
            else:
                word = self.word_ids.get(text, NONE)
                ahead = self.child(node, word) if word != NONE else NONE
                if ahead == NONE:
                    ahead = self.new_named(node, text)
            node = ahead
        return node

    cdef int32_t new_named(self, int32_t parent, str text) except -2:
        cdef int32_t word = self.word_ids.get(text, NONE)
        cdef int32_t node
        if word == NONE:
            if self.free_words_count:
                self.free_words_count -= 1
                word = self.free_words[self.free_words_count]
            else:
                word = <int32_t> len(self.word_uses)
                self.word_uses.append(None)
            self.word_ids[text] = word
            self.word_uses[word] = [text, 0]
        self.word_uses[word][1] += 1
        node = self.new_node(parent, word, False)
        self.nodes[node].following = self.nodes[parent].first
        if self.nodes[parent].first != NONE:
            self.nodes[self.nodes[parent].first].preceding = node
        self.nodes[parent].first = node
        self.put_edge((<uint64_t> parent << 32 | <uint32_t> word) + 1, node)
        self.climb(node, 0, 1, 0)
        return node

    cdef int32_t new_node(self, int32_t parent, int32_t word, bint loops) except -2:
        cdef int32_t node = self.free_node
        if node != NONE:
            self.free_node = self.nodes[node].parent
        else:
            if self.used == self.room:
                self.grow()
            node = self.used
            self.used += 1
            self.bindings.append(None)
        self.nodes[node] = Node(
            parent=parent, word=word, star=NONE, hash=NONE, first=NONE, following=NONE,
            preceding=NONE, size=1, patterns=0, seen=0, bound=False, loops=loops, dearest=0, cost=0)
        self.nodes[node].cost = self.cost_of(node)
        return node

    cdef int grow(self) except -1:
        cdef int32_t room = self.room * 2 if self.room else 16
        cdef void* place
        place = realloc(self.nodes, room * sizeof(Node))
        if place == NULL:
            raise MemoryError
        self.nodes = <Node*> place
        place = realloc(self.reached, room * sizeof(int32_t))
        if place == NULL:
            raise MemoryError
        self.reached = <int32_t*> place
        place = realloc(self.following, room * sizeof(int32_t))
        if place == NULL:
            raise MemoryError
        self.following = <int32_t*> place
        self.room = room
        return 0

    cdef int prune(self, int32_t node) except -1:
        """Removes a node that leads nowhere, and its parents that then lead nowhere."""
        cdef int32_t parent
        while node != 0 and self.nodes[node].size == 1 and not self.nodes[node].bound:
            parent = self.nodes[node].parent
            if self.nodes[parent].star == node:
                self.nodes[parent].star = NONE
            elif self.nodes[parent].hash == node:
                self.nodes[parent].hash = NONE
            else:
                self.unlink_named(parent, node)
            self.climb(node, self.nodes[node].cost, -1, 0)
            self.nodes[node].parent = self.free_node
            self.free_node = node
            node = parent
        return 0

    cdef int unlink_named(self, int32_t parent, int32_t node) except -1:
        cdef int32_t word = self.nodes[node].word
        if self.nodes[node].preceding == NONE:
            self.nodes[parent].first = self.nodes[node].following
        else:
            self.nodes[self.nodes[node].preceding].following = self.nodes[node].following
        if self.nodes[node].following != NONE:
            self.nodes[self.nodes[node].following].preceding = self.nodes[node].preceding
        self.drop_edge((<uint64_t> parent << 32 | <uint32_t> word) + 1)
        use = self.word_uses[word]
        use[1] -= 1
        if use[1] == 0:
            self.free_word(word)
            del self.word_ids[use[0]]
            self.word_uses[word] = None
        return 0

    cdef int free_word(self, int32_t word) except -1:
        """The number can be given to another word."""
        cdef int32_t room
        cdef void* place
        if self.free_words_count == self.free_words_room:
            room = self.free_words_room * 2 if self.free_words_room else 16
            place = realloc(self.free_words, room * sizeof(int32_t))
            if place == NULL:
                raise MemoryError
            self.free_words = <int32_t*> place
            self.free_words_room = room
        self.free_words[self.free_words_count] = word
        self.free_words_count += 1
        return 0

    # -- what a key can cost -----------------------------------------------------------------------

    cdef int64_t cost_of(self, int32_t node) noexcept:
        """Most visits in a subtree when its root is entered once.

        Of the children with a word only one fits the next word. What stands behind a `#` is entered
        again with each word, but no node is visited more often than there are places.
        """
        cdef Node* here = self.nodes + node
        cdef int64_t cost = 1 + here.dearest
        if here.star != NONE:
            cost += self.nodes[here.star].cost
        if here.loops:
            cost *= PLACES_MAX
        if here.hash != NONE:
            cost += self.nodes[here.hash].cost
        if here.bound:
            cost += FOUND
        return min(cost, <int64_t> here.size * PLACES_MAX + <int64_t> here.patterns * FOUND)

    cdef void mark(self, int32_t node, bint bound) noexcept:
        """A node got its first binding, or lost its last one."""
        cdef int64_t before = self.nodes[node].cost
        cdef int32_t change = 1 if bound else -1
        self.nodes[node].bound = bound
        self.nodes[node].patterns += change
        self.nodes[node].cost = self.cost_of(node)
        self.climb(node, before, 0, change)

    cdef void climb(self, int32_t node, int64_t before, int32_t nodes, int32_t patterns) noexcept:
        """Counts a change of `node`, whose cost was `before`, on the way to the root. A node that
        is new was 0 before; one that goes is unlinked already."""
        cdef bint is_named = self.nodes[node].word != NONE
        cdef int64_t now = 0 if nodes < 0 else self.nodes[node].cost
        cdef Node* parent
        node = self.nodes[node].parent
        while node != NONE:
            parent = self.nodes + node
            parent.size += nodes
            parent.patterns += patterns
            if is_named and now > parent.dearest:
                parent.dearest = now
            elif is_named and before == parent.dearest and now < before:
                parent.dearest = self.dearest_of(node, before)
            before = parent.cost
            parent.cost = self.cost_of(node)
            now = parent.cost
            is_named = parent.word != NONE
            node = parent.parent

    cdef int64_t dearest_of(self, int32_t node, int64_t most) noexcept:
        """The largest cost among the children with a word; looking ends at one of `most`."""
        cdef int64_t dearest = 0
        cdef int32_t child = self.nodes[node].first
        while child != NONE:
            if self.nodes[child].cost > dearest:
                dearest = self.nodes[child].cost
                if dearest == most:
                    break
            child = self.nodes[child].following
        return dearest

    # -- edges -------------------------------------------------------------------------------------

    cdef int put_edge(self, uint64_t key, int32_t child) except -1:
        if self.edges_used * 2 > self.edges_mask:
            self.grow_edges()
        self.edges_used += 1
        self.place_edge(key, child)
        return 0

    cdef void place_edge(self, uint64_t key, int32_t child) noexcept:
        cdef uint64_t at = mixed(key) & self.edges_mask
        while self.edges[at].key != 0:
            at = (at + 1) & self.edges_mask
        self.edges[at].key = key
        self.edges[at].child = child

    cdef int grow_edges(self) except -1:
        cdef Edge* old = self.edges
        cdef uint64_t length = self.edges_mask + 1
        cdef uint64_t i
        cdef Edge* grown = <Edge*> calloc(length * 2, sizeof(Edge))
        if grown == NULL:
            raise MemoryError
        self.edges = grown
        self.edges_mask = length * 2 - 1
        for i in range(length):
            if old[i].key != 0:
                self.place_edge(old[i].key, old[i].child)
        free(old)
        return 0

    cdef void drop_edge(self, uint64_t key) noexcept:
        """Removes an entry, and moves those behind it up that would not be found any more."""
        cdef uint64_t at = mixed(key) & self.edges_mask
        cdef uint64_t ahead
        cdef uint64_t home
        while self.edges[at].key != key:
            at = (at + 1) & self.edges_mask
        ahead = at
        while True:
            ahead = (ahead + 1) & self.edges_mask
            if self.edges[ahead].key == 0:
                break
            home = mixed(self.edges[ahead].key) & self.edges_mask
            if ((ahead - home) & self.edges_mask) >= ((ahead - at) & self.edges_mask):
                self.edges[at] = self.edges[ahead]
                at = ahead
        self.edges[at].key = 0
        self.edges_used -= 1


cdef inline uint64_t mixed(uint64_t key) noexcept:
    """A 64-bit mix (the finaliser of SplitMix64): neighbours land far from each other."""
    key ^= key >> 30
    key *= <uint64_t> 0xBF58476D1CE4E5B9
    key ^= key >> 27
    key *= <uint64_t> 0x94D049BB133111EB
    return key ^ key >> 31
