"""An index from which all ops are counted, however many configurations there are."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the index."""
    op.create_index("configuration_op_by_id", "configuration", ["id", "op"])


def downgrade() -> None:
    """Drop it again."""
    op.drop_index("configuration_op_by_id", "configuration")
