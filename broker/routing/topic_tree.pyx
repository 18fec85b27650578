# cython: language_level=3
"""The patterns of a topic exchange as a tree of words, and how a key walks it.

A key walks the tree word by word with the set of nodes reached so far (a nondeterministic
automaton), so that a node is visited at most once for each word of the key; there is no
backtracking. How many visits the longest key could cost is known before any key comes: each node
keeps an upper bound for its subtree, which a binding updates along its path. The exchange refuses
patterns by it, so that a publish never has to be refused.

Nodes are structs in one array and their named children entries of one hash table
(`broker.routing.topic_edges`): a visit touches one cache line, and makes no object.
"""

from broker.kernel.largest cimport Largest
from broker.kernel.wide_dict cimport WideDict
from broker.routing.topic_edges cimport EdgeTable, NONE, edge_key

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef enum:
    # A routing key has 255 bytes, so 256 words at most, and a node is reached before the first of
    # them or behind each.
    PLACES_MAX = 257
    # What a pattern that fits costs besides, in visits: its bindings become Python objects.
    FOUND = 50
    # Children with a word of which the dearest is found by a look at all of them.
    FEW = 64

STAR = "*"
HASH = "#"

# Of 64 bytes, a cache line.
cdef struct Node:
    int32_t parent
    int32_t word             # of the edge from the parent; NONE for the wildcards
    int32_t star
    int32_t hash
    int32_t first            # of the children with a word, a list by `following` and `preceding`
    int32_t following
    int32_t preceding
    int32_t children         # with a word
    int32_t size             # nodes of the subtree, this one included
    int32_t patterns         # of the subtree that have bindings
    uint32_t seen            # the step that reached it last
    uint8_t bound            # has bindings
    uint8_t loops            # stands behind a `#`: stays reached, whatever words come
    int64_t dearest          # the largest `cost` among the children with a word
    int64_t cost             # most visits in the subtree when the node is entered once


cdef class TopicTree:
    """Patterns (lists of words in `broker.routing.topic.pattern_of`'s form) with their bindings,
    which are no dicts and can be hashed.

    `cost` is how much the dearest routing key can cost at most: 1 for each visit of a node, and
    `FOUND` for each pattern that fits. `visits` counts the nodes that `match` visited so far,
    `compared` the children that were compared to find the dearest when that changed.
    """

    cdef Node* nodes
    cdef EdgeTable edges
    cdef int32_t* reached
    cdef int32_t* following
    cdef int32_t room
    cdef int32_t used
    cdef int32_t free_node
    cdef uint32_t step
    cdef readonly uint64_t visits
    cdef readonly uint64_t compared
    cdef WideDict word_ids
    cdef list word_texts
    cdef int32_t* word_uses
    cdef int32_t word_uses_room
    # Numbers of words that are not used any more, as a stack. Numbers, not Python's: each of those
    # would hold a page of objects in memory when all others of it are gone.
    cdef int32_t* free_words
    cdef int32_t free_words_count
    cdef int32_t free_words_room
    cdef list bindings           # of each node: None, one, or a dict of them
    cdef dict costs              # of the children of a node that has more than FEW, as a `Largest`

    def __cinit__(self):
        self.free_node = NONE
        self.word_ids = WideDict()
        self.word_texts = []
        self.bindings = []
        self.costs = {}
        self.edges = EdgeTable()
        self.new_node(NONE, NONE, False)

    def __dealloc__(self):
        self.free_all()

    cdef void free_all(self) noexcept nogil:
        free(self.nodes)
        free(self.reached)
        free(self.following)
        free(self.word_uses)
        free(self.free_words)
        self.nodes = NULL
        self.reached = self.following = self.word_uses = self.free_words = NULL

    def give_back(self):
        """Frees the memory of an empty tree, which must not be used any more. For a thread: of a
        million nodes it is 120 MB, which take some 10 ms."""
        cdef EdgeTable edges = self.edges
        with nogil:
            self.free_all()
            edges.free_all()

    @property
    def cost(self) -> int:
        return self.nodes[0].cost

    @property
    def longest_way(self) -> int:
        """The places looked at for the edge that lies farthest from its own."""
        return self.edges.longest_way()

    @property
    def capacity(self) -> int:
        """The nodes that there is memory for: it grows, and does not shrink."""
        return self.room

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

    def add(self, list pattern, binding):
        """Keeps a binding at its pattern."""
        cdef int32_t node = self.path(pattern)
        found = self.bindings[node]
        if found is None:
            self.bindings[node] = binding
            self.mark(node, True)
        elif type(found) is dict:
            found[binding] = binding
        else:
            self.bindings[node] = {found: found, binding: binding}

    def remove(self, list pattern, binding):
        """Forgets a binding. Raises KeyError if it is not there."""
        cdef int32_t node = self.path(pattern)
        found = self.bindings[node]
        if type(found) is dict:
            del found[binding]
        elif found is None or found != binding:
            self.prune(node)
            raise KeyError(binding)
        else:
            found = None
        if not found:
            self.bindings[node] = None
            self.mark(node, False)
            self.prune(node)

    def match(self, list words) -> list:
        """The bindings whose patterns fit the words of a routing key."""
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
            word = self.word_ids.part_of(text).get(text, NONE)
            self.next_step()
            ahead = 0
            for i in range(count):
                at = self.reached[i]
                if self.nodes[at].loops:
                    ahead = self.reach(self.following, ahead, at)
                if self.nodes[at].star != NONE:
                    ahead = self.reach(self.following, ahead, self.nodes[at].star)
                if word != NONE and self.nodes[at].first != NONE:
                    at = self.edges.find(edge_key(at, word))
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
            if type(bound) is dict:
                found += bound.values()
            elif bound is not None:
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
                word = self.word_ids.part_of(text).get(text, NONE)
                ahead = self.edges.find(edge_key(node, word)) if word != NONE else NONE
                if ahead == NONE:
                    ahead = self.new_named(node, text)
            node = ahead
        return node

    cdef int32_t new_named(self, int32_t parent, str text) except -2:
        cdef int32_t word = self.word_ids.part_of(text).get(text, NONE)
        cdef int32_t node
        if word == NONE:
            if self.free_words_count:
                self.free_words_count -= 1
                word = self.free_words[self.free_words_count]
            else:
                word = self.new_word()
            self.word_ids[text] = word
            self.word_texts[word] = text
            self.word_uses[word] = 0
        self.word_uses[word] += 1
        node = self.new_node(parent, word, False)
        self.nodes[node].following = self.nodes[parent].first
        if self.nodes[parent].first != NONE:
            self.nodes[self.nodes[parent].first].preceding = node
        self.nodes[parent].first = node
        self.nodes[parent].children += 1
        if self.nodes[parent].children == FEW + 1:
            self.costs[parent] = self.costs_behind(node)
        self.edges.put(edge_key(parent, word), node)
        self.climb(node, 0, 1, 0)
        return node

    cdef int32_t new_word(self) except -2:
        """The next number of a word."""
        cdef int32_t word = <int32_t> len(self.word_texts)
        cdef int32_t room
        cdef void* place
        if word == self.word_uses_room:
            room = self.word_uses_room * 2 if self.word_uses_room else 16
            place = realloc(self.word_uses, room * sizeof(int32_t))
            if place == NULL:
                raise MemoryError
            self.word_uses = <int32_t*> place
            self.word_uses_room = room
        self.word_texts.append(None)
        return word

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
            preceding=NONE, children=0, size=1, patterns=0, seen=0, bound=False, loops=loops,
            dearest=0, cost=0)
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
        self.nodes[parent].children -= 1
        if self.nodes[parent].children == FEW:
            del self.costs[parent]
        self.edges.drop(edge_key(parent, word))
        self.word_uses[word] -= 1
        if self.word_uses[word] == 0:
            self.free_word(word)
            del self.word_ids[self.word_texts[word]]
            self.word_texts[word] = None
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

    cdef int mark(self, int32_t node, bint bound) except -1:
        """A node got its first binding, or lost its last one."""
        cdef int64_t before = self.nodes[node].cost
        cdef int32_t change = 1 if bound else -1
        self.nodes[node].bound = bound
        self.nodes[node].patterns += change
        self.nodes[node].cost = self.cost_of(node)
        return self.climb(node, before, 0, change)

    cdef int climb(self, int32_t node, int64_t before, int32_t nodes, int32_t patterns) except -1:
        """Counts a change of `node`, whose cost was `before`, on the way to the root. A node that
        is new was 0 before; one that goes is unlinked already."""
        cdef bint is_named = self.nodes[node].word != NONE
        cdef int64_t now = 0 if nodes < 0 else self.nodes[node].cost
        cdef Node* parent
        cdef Largest costs
        node = self.nodes[node].parent
        while node != NONE:
            parent = self.nodes + node
            parent.size += nodes
            parent.patterns += patterns
            if is_named and parent.children > FEW:
                costs = <Largest> self.costs[node]
                costs.remove(before)
                costs.add(now)
                parent.dearest = costs.most
            elif is_named and now > parent.dearest:
                parent.dearest = now
            elif is_named and before == parent.dearest and now < before:
                parent.dearest = self.dearest_of(node)
            before = parent.cost
            parent.cost = self.cost_of(node)
            now = parent.cost
            is_named = parent.word != NONE
            node = parent.parent
        return 0

    cdef Largest costs_behind(self, int32_t child):
        """The costs of the children that follow this one."""
        cdef Largest costs = Largest()
        child = self.nodes[child].following
        while child != NONE:
            costs.add(self.nodes[child].cost)
            child = self.nodes[child].following
        return costs

    cdef int64_t dearest_of(self, int32_t node) noexcept:
        """The largest cost among the children with a word, which are few."""
        cdef int64_t dearest = 0
        cdef int32_t child = self.nodes[node].first
        while child != NONE:
            self.compared += 1
            dearest = max(dearest, self.nodes[child].cost)
            child = self.nodes[child].following
        return dearest
