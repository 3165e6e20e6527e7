//go:build !race

package tcp

func beforeWrite() {}

func afterRead() {}
