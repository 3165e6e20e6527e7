//go:build !race

package tcp

func beforeWritev() {}

func afterRead() {}
