package medium

var pinned = []int{4, 10, 23, 24, 32, 34, 37, 42, 62, 80, 85, 94}

const normalTable, exponentialTable = 0xd209d3f48e6c2508, 0xe6a22120c2547b5
