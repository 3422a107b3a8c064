"""Previews, orders and their life cycle, holds, keeps; the signer process."""
